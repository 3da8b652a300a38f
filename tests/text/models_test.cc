// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "fullshard/text/models/bpe.h"
#include "fullshard/text/models/byte_trie.h"
#include "fullshard/text/models/unigram.h"
#include "fullshard/text/models/wordpiece.h"

namespace fullshard::text {
namespace {

using Ids = std::vector<int32_t>;

Vocabulary vocabulary(std::initializer_list<std::string_view> tokens) {
  Vocabulary result;
  for (const auto token : tokens) result.insert(token, result.size());
  return result;
}

Ids ids(const Model& model, std::string_view word) {
  Workspace workspace;
  Ids result;
  model.tokenize(word, workspace, result);
  return result;
}

const std::vector<Bpe::Pair> kMerges = {{"a", "b"}, {"b", "c"}, {"ab", "c"}};

TEST(Bpe, MergesTheLowestRankFirstAndTheLeftmostOfEquals) {
  const Bpe bpe(vocabulary({"a", "b", "c", "ab", "bc", "abc"}), kMerges, {});
  EXPECT_EQ(ids(bpe, "abc"), (Ids{5}));
  EXPECT_EQ(ids(bpe, "bcb"), (Ids{4, 1}));
  EXPECT_EQ(ids(bpe, "abab"), (Ids{3, 3}));
}

TEST(Bpe, LongWordsAreMergedAsShortOnes) {
  const Bpe bpe(vocabulary({"a", "b", "c", "ab", "bc", "abc"}), kMerges, {});
  std::string word;
  Ids expected;
  for (int i = 0; i < 100; ++i) {
    word += "abcb";
    expected.insert(expected.end(), {5, 1});
  }
  EXPECT_EQ(ids(bpe, word), expected);
}

TEST(Bpe, UnknownCharactersAreFusedDroppedOrWrittenAsBytes) {
  const auto tokens = vocabulary({"a", "?", "<0xC3>", "<0xA9>"});
  BpeOptions options;
  EXPECT_EQ(ids(Bpe(tokens, {}, options), "axya"), (Ids{0, 0}));
  options.unknown = "?";
  EXPECT_EQ(ids(Bpe(tokens, {}, options), "axya"), (Ids{0, 1, 1, 0}));
  options.fuse_unknown = true;
  EXPECT_EQ(ids(Bpe(tokens, {}, options), "axya"), (Ids{0, 1, 0}));
  options.byte_fallback = true;
  EXPECT_EQ(ids(Bpe(tokens, {}, options), "a\u00e9y"), (Ids{0, 2, 3, 1}));
}

TEST(Bpe, PrefixesAndSuffixesMarkTheParts) {
  BpeOptions options;
  options.continuing_prefix = "##";
  options.end_of_word_suffix = "</w>";
  const Bpe bpe(vocabulary({"a", "##b", "##b</w>", "ab</w>"}), {{"a", "##b</w>"}}, options);
  EXPECT_EQ(ids(bpe, "ab"), (Ids{3}));
  EXPECT_EQ(ids(bpe, "abb"), (Ids{0, 1, 2}));
}

TEST(Bpe, IgnoreMergesTakesAWholeWord) {
  BpeOptions options;
  EXPECT_EQ(ids(Bpe(vocabulary({"a", "b", "ab"}), {}, options), "ab"), (Ids{0, 1}));
  options.ignore_merges = true;
  EXPECT_EQ(ids(Bpe(vocabulary({"a", "b", "ab"}), {}, options), "ab"), (Ids{2}));
}

TEST(Bpe, CutsAtSpacesOnlyWhereNoMergeCrossesThem) {
  EXPECT_TRUE(
      Bpe(vocabulary({"a", "▁", "▁a", "▁▁"}), {{"▁", "a"}, {"▁", "▁"}}, {}).may_cut_at_spaces());
  EXPECT_FALSE(Bpe(vocabulary({"a", "▁", "a▁"}), {{"a", "▁"}}, {}).may_cut_at_spaces());
  EXPECT_FALSE(Bpe(vocabulary({"a"}), {}, {}).may_cut_at_spaces());
}

TEST(WordPiece, TakesTheLongestTokenFirst) {
  const WordPiece model(vocabulary({"[UNK]", "un", "##aff", "##able", "##a", "##affa"}), {});
  EXPECT_EQ(ids(model, "unaffable"), (Ids{0}));  // ##affa leaves "ble"
  EXPECT_EQ(ids(model, "unaff"), (Ids{1, 2}));
  EXPECT_EQ(ids(model, "unable"), (Ids{1, 3}));
  EXPECT_EQ(ids(model, std::string(101, 'a')), (Ids{0}));
  EXPECT_THROW(WordPiece(vocabulary({"a"}), {}), Error);
}

TEST(Unigram, TakesTheBestSum) {
  UnigramOptions options;
  options.unknown = 0;
  options.unknown_score = -20;
  const Unigram model(vocabulary({"<unk>", "a", "b", "ab", "abc", "c"}), {0, -1, -1, -1.5, -9, -2},
                      options);
  EXPECT_EQ(ids(model, "abc"), (Ids{3, 5}));
  EXPECT_EQ(ids(model, "axyb"), (Ids{1, 0, 2}));  // consecutive unknown characters are one
}

TEST(Unigram, WithoutAnUnknownTokenTheTextIsNamed) {
  const Unigram model(vocabulary({"a"}), {0}, {});
  try {
    ids(model, "ax");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "model.unk_id: the text has \"x\", which is in no token, and there is no unknown token");
  }
}

TEST(ByteTrie, FindsTheLongest) {
  ByteTrie trie;
  trie.insert("ab", 1);
  trie.insert("abcd", 2);
  EXPECT_EQ(trie.longest("abcx").value, 1);
  EXPECT_EQ(trie.longest("abcd").length, 4U);
  EXPECT_EQ(trie.longest("b").value, ByteTrie::kNone);
}

TEST(Vocabulary, KeepsIdsWithGapsAndTheLastOfATwin) {
  Vocabulary tokens;
  tokens.insert("a", 5);
  tokens.insert("b", 2);
  tokens.insert("a", 7);
  EXPECT_EQ(tokens.find("a"), 7);
  EXPECT_EQ(tokens.find("c"), Vocabulary::kNone);
  EXPECT_EQ(tokens.token_of(2), "b");
  EXPECT_EQ(tokens.token_of(3), std::nullopt);
  EXPECT_EQ(tokens.size(), 8);
  EXPECT_THROW(tokens.insert("x", -1), Error);
  EXPECT_THROW(tokens.insert("x", 1 << 30), Error);
}

}  // namespace
}  // namespace fullshard::text
