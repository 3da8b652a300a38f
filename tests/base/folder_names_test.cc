// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/folder_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fullshard/base/error.h"
#include "tests/files.h"

namespace fullshard::base {
namespace {

TEST(FolderNames, AreSortedAndNoneWhereThereIsNoFolder) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"b", "a", ".hidden"}) std::ofstream(folder.file(name)) << "x";
  EXPECT_THAT(names_in_folder(folder.path()), ::testing::ElementsAre(".hidden", "a", "b"));
  EXPECT_TRUE(names_in_folder(folder.file("missing")).empty());
  EXPECT_TRUE(names_in_folder(folder.file("a")).empty()) << "a file is no folder";
}

TEST(FolderNames, OfALinkOnlyTheLinkIsRemoved) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("others"));
  std::ofstream(folder.file("others/theirs")) << "x";
  std::filesystem::create_directory_symlink(folder.file("others"), folder.file("link"));
  remove_flat_folder(folder.file("link"));
  EXPECT_FALSE(is_there(folder.file("link")));
  EXPECT_THAT(names_in_folder(folder.file("others")), ::testing::ElementsAre("theirs"));
  remove_flat_folder(folder.file("others"));
  EXPECT_FALSE(is_there(folder.file("others")));
}

TEST(FolderNames, AreExchangedOrGivenWhereNobodyHasThem) {
  const testing::TemporaryFolder folder;
  const std::string part = folder.file("one.part"), name = folder.file("one");
  std::filesystem::create_directory(part);
  std::ofstream(part + "/first") << "x";
  exchange_names(part, name);
  EXPECT_FALSE(is_there(part));
  std::filesystem::create_directory(part);
  std::ofstream(part + "/second") << "x";
  exchange_names(part, name);
  EXPECT_THAT(names_in_folder(name), ::testing::ElementsAre("second"));
  EXPECT_THAT(names_in_folder(part), ::testing::ElementsAre("first"));
  EXPECT_THROW(exchange_names(folder.file("missing"), name), Error);
  EXPECT_THAT(names_in_folder(name), ::testing::ElementsAre("second"));
}

}  // namespace
}  // namespace fullshard::base
