// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/crc32.h"

#include <gtest/gtest.h>

#include <string>

namespace fullshard::formats {
namespace {

std::string pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 37 + i / 7 + 11);
  return text;
}

TEST(Crc32, IsThatOfZipArchives) {
  EXPECT_EQ(crc32(0, "123456789", 9), 0xcbf43926U);
  EXPECT_EQ(crc32_by_tables(0, "123456789", 9), 0xcbf43926U);
  EXPECT_EQ(crc32(crc32(0, "12345", 5), "6789", 4), 0xcbf43926U);
  EXPECT_EQ(crc32(0, "", 0), 0U);
}

TEST(Crc32, InstructionsAndTablesAgreeAtEveryLengthAndAlignment) {
  const std::string bytes = pattern(700);
  for (int64_t begin = 0; begin < 17; ++begin) {
    for (int64_t length = 0; length < 680; length += length < 200 ? 1 : 13) {
      ASSERT_EQ(crc32(0x1234567, bytes.data() + begin, length),
                crc32_by_tables(0x1234567, bytes.data() + begin, length))
          << begin << " " << length;
    }
  }
}

TEST(Crc32, OfTwoStretchesFollowsFromTheirs) {
  const std::string bytes = pattern(5000);
  const uint32_t whole = crc32(0, bytes.data(), 5000);
  for (const int64_t first : {0, 1, 63, 64, 2500, 4999, 5000}) {
    EXPECT_EQ(crc32_of_both(crc32(0, bytes.data(), first),
                            crc32(0, bytes.data() + first, 5000 - first), 5000 - first),
              whole)
        << first;
  }
}

}  // namespace
}  // namespace fullshard::formats
