// SPDX-License-Identifier: Apache-2.0
// Slots whose bytes lie in files of others.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "fullshard/tiers/slot_file.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/tiers/slot_buffers.h"

namespace fullshard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A file of letters, and a descriptor that is closed at the end.
struct LetterFile {
  explicit LetterFile(const std::string& path) {
    for (int i = 0; i < 3 * kPage; ++i) letters += static_cast<char>('a' + i % 23);
    descriptor = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    EXPECT_EQ(::write(descriptor, letters.data(), letters.size()),
              static_cast<ssize_t>(letters.size()));
  }
  ~LetterFile() { ::close(descriptor); }
  LetterFile(const LetterFile&) = delete;
  LetterFile& operator=(const LetterFile&) = delete;

  std::string letters;
  int descriptor = -1;
};

TEST(LinkedSlots, ReadsLinkedPartsWhereTheyLie) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(),
                        .slot_bytes = {kPage, 3 * kPage},
                        .space = tiers::FileSpace::sparse});
  std::string expected;
  {
    const LetterFile foreign(folder.path() + "/letters");
    file.link({.slot = 1, .offset = 10, .bytes = 5000}, {foreign.descriptor, 77});
    file.link({.slot = 1, .offset = 6000, .bytes = 7}, {foreign.descriptor, 3});
    expected = std::string(10, '\0') + foreign.letters.substr(77, 5000) + std::string(990, '\0') +
               foreign.letters.substr(3, 7) + std::string(3 * kPage - 6007, '\0');
  }
  file.reserve_part({.slot = 1, .offset = 5500, .bytes = 3});
  std::memcpy(file.map_slot(1).get() + 5500, "own", 3);
  expected.replace(5500, 3, "own");
  EXPECT_EQ(read_slot(file, 1, 3 * kPage), expected);
  disk::DirectBuffer part = buffer_of(kPage, '?');  // a window in the middle
  file.wait(file.read({.slot = 1, .offset = kPage, .bytes = 2000}, part.data()));
  EXPECT_EQ(std::string(part.data(), 2000), expected.substr(kPage, 2000));
  EXPECT_EQ(read_slot(file, 0, kPage), std::string(kPage, '\0'));
}

TEST(LinkedSlots, RefusesWritesOfLinkedPartsAndPartsThatAreLinkedTwice) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {3 * kPage}});
  const LetterFile foreign(folder.path() + "/letters");
  file.link({.slot = 0, .offset = 100, .bytes = 100}, {foreign.descriptor, 0});
  disk::DirectBuffer data = buffer_of(kPage, 'x');
  EXPECT_THAT(message_of([&] { file.write({.slot = 0, .bytes = kPage}, data.data()); }),
              HasSubstr("slot 0 at byte 0 lies in somebody else's file, which is not written to"));
  file.wait(file.write({.slot = 0, .offset = kPage, .bytes = kPage}, data.data()));
  EXPECT_THAT(message_of([&] {
                file.link({.slot = 0, .offset = 199, .bytes = 2}, {foreign.descriptor, 0});
              }),
              HasSubstr("bytes 199 to 201 of slot 0 are linked already"));
  EXPECT_THAT(message_of([&] {
                file.link({.slot = 0, .offset = 90, .bytes = 11}, {foreign.descriptor, 0});
              }),
              HasSubstr("bytes 90 to 101 of slot 0 are linked already"));
  file.link({.slot = 0, .offset = 100, .bytes = 100}, {foreign.descriptor, 23});  // the same again
  EXPECT_EQ(read_slot(file, 0, 200).substr(100), foreign.letters.substr(23, 100));
  EXPECT_THAT(message_of([&] {
                file.link({.slot = 0, .offset = 3 * kPage, .bytes = 1}, {foreign.descriptor, 0});
              }),
              HasSubstr("of slot 0, which has 12288"));
}

TEST(LinkedSlots, SaysThatALinkedFileEndsEarly) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {kPage}});
  const LetterFile foreign(folder.path() + "/letters");
  file.link({.slot = 0, .offset = 16, .bytes = 512}, {foreign.descriptor, 3 * kPage - 100});
  EXPECT_THAT(
      message_of([&] { read_slot(file, 0, kPage); }),
      AllOf(HasSubstr("cannot read slot 0 at byte 116"), HasSubstr("the file ended early")));
}

// What is only linked takes no space: the disk need not have it.
TEST(LinkedSlots, TakesNoSpaceWhereItIsSparse) {
  const TemporaryFolder folder;
  constexpr int64_t kMuch = int64_t{1} << 42;
  EXPECT_THAT(
      message_of([&] { tiers::SlotFile({.folder = folder.path(), .slot_bytes = {kMuch}}); }),
      HasSubstr("are needed in"));
  const tiers::SlotFile file(
      {.folder = folder.path(), .slot_bytes = {kMuch}, .space = tiers::FileSpace::sparse});
  EXPECT_EQ(file.bytes(), kMuch);
}

}  // namespace
}  // namespace fullshard::testing
