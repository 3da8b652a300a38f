// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/folder_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

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

}  // namespace
}  // namespace fullshard::base
