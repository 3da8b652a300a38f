// SPDX-License-Identifier: Apache-2.0
// Characters and their normal forms.
#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "fullshard/text/pipeline/pattern.h"
#include "fullshard/text/unicode/charsmap.h"
#include "fullshard/text/unicode/cluster.h"
#include "fullshard/text/unicode/normal_forms.h"
#include "fullshard/text/unicode/unicode.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

TEST(Utf8, EachBrokenBeginningBecomesOneReplacement) {
  EXPECT_EQ(replace_invalid_utf8("a\xFF"
                                 "b"),
            "a\uFFFDb");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8"), "\uFFFD");                  // cut short
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98x"), "\uFFFDx");
  EXPECT_TRUE(is_valid_utf8("abcdefghij\u00e9\U0001F600"));
  EXPECT_FALSE(is_valid_utf8("abcdefghij\x80"));
  EXPECT_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));
}

TEST(NormalForms, ComposeDecomposeAndReorder) {
  EXPECT_EQ(to_normal_form("e\u0301", NormalForm::nfc), "\u00e9");
  EXPECT_EQ(to_normal_form("\u00e9", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(to_normal_form("a\u0301\u0323", NormalForm::nfd), "a\u0323\u0301");
  EXPECT_EQ(to_normal_form("\u1112\u1161\u11ab", NormalForm::nfc), "\ud55c");
  EXPECT_EQ(to_normal_form("\ud55c", NormalForm::nfd), "\u1112\u1161\u11ab");
  EXPECT_EQ(to_normal_form("\ufb01\u00bd", NormalForm::nfkc), "fi1\u20442");
  EXPECT_EQ(to_normal_form("\u0344", NormalForm::nfc), "\u0308\u0301");  // does not compose again
  EXPECT_EQ(to_normal_form("plain text", NormalForm::nfkd), "plain text");
}

TEST(Unicode, LowercaseLooksAtNoNeighbour) {
  EXPECT_EQ(lowercase("ABC \u00c9\u03a3 \u0130"), "abc \u00e9\u03c3 i\u0307");
}

TEST(Clusters, HoldALetterWithItsMarks) {
  EXPECT_EQ(cluster_length("ab"), 1U);
  EXPECT_EQ(cluster_length("e\u0301x"), 3U);
  EXPECT_EQ(cluster_length("\r\nx"), 2U);
  EXPECT_EQ(cluster_length("\n\u0301"), 1U);
  EXPECT_EQ(cluster_length("\u0600a"), 3U);
  EXPECT_EQ(cluster_length("\u00a9\u200d\u00a9"), 7U);
  EXPECT_EQ(cluster_length("a\u200d\u00a9"), 4U);
}

TEST(Charsmap, RefusesWhatIsCutShort) {
  EXPECT_THROW(Charsmap(""), Error);
  EXPECT_THROW(Charsmap(std::string("\x08\0\0\0abcd", 8)), Error);
  EXPECT_THROW(Charsmap(std::string("\x03\0\0\0abcd", 8)), Error);
  EXPECT_FALSE(Charsmap(std::string("\0\0\0\0", 4)).longest("a"));
  // In a trie with arbitrary units nothing beyond its end is read.
  EXPECT_FALSE(Charsmap(std::string("\x04\0\0\0\xFF\xFF\xFF\xFF", 8)).longest("abc"));
}

std::vector<std::string> words(const std::string& expression, std::string_view text) {
  std::vector<Match> found;
  regex_pattern(expression)->find(text, found);
  std::vector<std::string> result;
  for (const Match& match : found)
    result.emplace_back(text.substr(match.begin, match.end - match.begin));
  return result;
}

using Words = std::vector<std::string>;

TEST(WordPatterns, SplitAsTheirExpressions) {
  const std::string gpt2(kGpt2Expression), qwen2(kQwen2Expression);
  EXPECT_EQ(words(gpt2, "it's  12a \n\n x\n"),
            (Words{"it", "'s", " ", " 12", "a", " \n\n", " x", "\n"}));
  EXPECT_EQ(words(gpt2, "IT'S"), (Words{"IT", "'", "S"}));
  EXPECT_EQ(words(qwen2, "IT'S 12 \n\n  x!\n\n"),
            (Words{"IT", "'S", " ", "1", "2", " \n\n", " ", " x", "!\n\n"}));
  EXPECT_EQ(words(qwen2, "\tfoo(bar)"), (Words{"\tfoo", "(bar", ")"}));
}

}  // namespace
}  // namespace fullshard::text
