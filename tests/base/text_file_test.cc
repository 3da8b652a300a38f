// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::base {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

TEST(TextFile, IsReadWholeOrNotThere) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.file("a")) << "some\ntext";
  EXPECT_EQ(find_text_file(folder.file("a")), "some\ntext");
  EXPECT_EQ(find_text_file(folder.file("none")), std::nullopt);
  EXPECT_THAT(message_of([&] { read_text_file(folder.file("none")); }),
              HasSubstr("none: cannot be read: No such file or directory"));
  EXPECT_FALSE(find_text_file("/proc/self/status")->empty()) << "whose size is told as 0";
}

TEST(TextFile, ThatIsTooLongIsRefusedBeforeItIsRead) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.file("a")) << "12345678";
  EXPECT_EQ(find_text_file(folder.file("a"), 8), "12345678");
  EXPECT_THAT(message_of([&] { find_text_file(folder.file("a"), 7); }),
              HasSubstr("a: has 8 bytes, more than the 7 that such a file may have"));
  ASSERT_EQ(::truncate(folder.file("a").c_str(), int64_t{1} << 40), 0);
  EXPECT_THAT(message_of([&] { find_text_file(folder.file("a")); }),
              HasSubstr("has 1099511627776 bytes"));
}

TEST(TextFile, IsNoFolderPipeOrDevice) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { find_text_file(folder.path()); }),
              HasSubstr("is a folder, expected a file"));
  EXPECT_THAT(message_of([&] { find_text_file(folder.file("pipe")); }),
              HasSubstr("pipe: is not a regular file"));
  EXPECT_THAT(message_of([] { find_text_file("/dev/zero"); }), HasSubstr("not a regular file"));
}

TEST(TextFile, MayBeAPipeWhereThatIsMeant) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(folder.file("pipe")) << "from a program"; });
  EXPECT_EQ(find_text_file(folder.file("pipe"), 100, TextFrom::anything), "from a program");
  writer.join();
  EXPECT_THAT(message_of([] { find_text_file("/dev/zero", 1000, TextFrom::anything); }),
              HasSubstr("has more than the 1000 bytes"));
}

}  // namespace
}  // namespace fullshard::base
