// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/printable.h"

#include <gtest/gtest.h>

#include <string>

#include "fullshard/base/utf8_character.h"

namespace fullshard::base {
namespace {

using namespace std::string_literals;

TEST(Printable, LeavesWhatCanBeRead) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("model.layers.0.mlp.weight"), "model.layers.0.mlp.weight");
  EXPECT_EQ(printable("größe 日本 🙂 ~"), "größe 日本 🙂 ~");
  EXPECT_EQ(printable("a\\b"), "a\\b");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\nb\rc\td"), "a\\nb\\rc\\td");
  EXPECT_EQ(printable("\x1b[31mred\x07\x7f"), "\\x1b[31mred\\x07\\x7f");
  EXPECT_EQ(printable("a\0b"s), "a\\x00b");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J\xC2\xA0"),
            "\\xc2\\x9b"
            "2J\xC2\xA0");
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\x80z"), "\\x80z");
  EXPECT_EQ(printable("\xC3"), "\\xc3") << "cut off";
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf") << "longer than need be";
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
}

TEST(Printable, EveryByteGivesTextOfOneLineThatStaysTheSame) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      const std::string once = printable(text);
      for (size_t at = 0; at < once.size();) {
        const size_t length = utf8_character_length(std::string_view(once).substr(at));
        ASSERT_GT(length, 0U) << first << " " << second;
        ASSERT_TRUE(length > 1 || (once[at] >= 0x20 && once[at] < 0x7F)) << first << " " << second;
        at += length;
      }
      ASSERT_EQ(printable(once), once) << first << " " << second;
    }
  }
}

TEST(Printable, IsCutBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdef", 5), "abcde…");
  EXPECT_EQ(printable("abö", 3), "ab…");
  EXPECT_EQ(printable("ab\n", 3), "ab…");
  EXPECT_EQ(printable("ab\n", 4), "ab\\n");
  EXPECT_EQ(printable("abc", 0), "…");
}

}  // namespace
}  // namespace fullshard::base
