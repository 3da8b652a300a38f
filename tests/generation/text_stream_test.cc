// SPDX-License-Identifier: Apache-2.0
// Text while tokens come is the text of all tokens together, as transformers' decode gives it with
// skip_special_tokens.
#include "fullshard/generation/text_stream.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>

#include "tests/files.h"

namespace fullshard::testing {
namespace {

using generation::TextStream;

constexpr const char* kMetaspace =
    R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true})";
constexpr const char* kByteFallback = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
constexpr const char* kWordPiece = R"({"type": "WordPiece", "prefix": "##", "cleanup": true})";

constexpr int64_t kEnd = 0, kCute = 1, kDog = 2, kBracket = 3, kWrong = 4, kLetter = 5, kLine = 6,
                  kFirstOfTwo = 7, kSecondOfTwo = 8;

class TextStreams : public ::testing::Test {
 protected:
  const Tokenizer& tokenizer(const char* decoder) {
    std::ofstream(folder_.file("tokenizer.json"))
        << R"({"added_tokens": [{"id": 0, "content": "</s>", "single_word": false,
      "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
      "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": )"
        << decoder << R"(, "model": {"type": "BPE", "byte_fallback": true, "merges": [],
      "vocab": {"</s>": 0, "▁cute": 1, "▁dog": 2, "<0x5B>": 3, "<0x92>": 4, "b": 5, "<0x0A>": 6,
                "<0xC3>": 7, "<0xA9>": 8}}})";
    tokenizer_ = load_tokenizer(folder_.file("tokenizer.json"));
    return *tokenizer_;
  }

  const TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// The pieces with '|' between them, the last one by finish().
std::string pieces_of(TextStream& stream, const std::vector<int64_t>& tokens) {
  std::string pieces;
  for (const int64_t token : tokens) pieces += stream.push(token) + "|";
  return pieces + stream.finish();
}

TEST_F(TextStreams, KeepTheSpaceBehindASkippedToken) {
  const std::vector<std::string> no_stop;
  for (const char* decoder : {kMetaspace, kByteFallback}) {
    TextStream stream(tokenizer(decoder), no_stop);
    EXPECT_EQ(pieces_of(stream, {kEnd, kCute, kEnd, kEnd, kDog}), "|cute||| dog|");
  }
  TextStream stream(tokenizer(kWordPiece), no_stop);
  EXPECT_EQ(pieces_of(stream, {kLetter, kEnd, kLetter}), "b|| b|");
}

TEST_F(TextStreams, FindAStopTextBehindASkippedToken) {
  const std::vector<std::string> stop = {"e d"};
  TextStream stream(tokenizer(kMetaspace), stop);
  EXPECT_EQ(pieces_of(stream, {kCute, kEnd, kDog}), "cut|||");
  EXPECT_TRUE(stream.has_stopped());
  EXPECT_EQ(stream.text(), "cut");
}

TEST_F(TextStreams, StopAtASpecialTokenAndGiveWhatWasHeld) {
  const std::vector<std::string> stop = {"e d", "</s>"};
  TextStream stream(tokenizer(kMetaspace), stop);
  EXPECT_EQ(pieces_of(stream, {kCute, kEnd}), "cut|e|");
  EXPECT_TRUE(stream.has_stopped());
  EXPECT_EQ(stream.text(), "cute");
}

TEST_F(TextStreams, HoldARunOfBytesUntilItEnds) {
  const std::vector<std::string> no_stop;
  const Tokenizer& with_fallback = tokenizer(kByteFallback);
  const auto said = [&](const std::vector<int64_t>& tokens) {
    TextStream stream(with_fallback, no_stop);
    return pieces_of(stream, tokens);
  };
  EXPECT_EQ(said({kCute, kBracket, kWrong, kLetter}), "cute|||\uFFFD\uFFFDb|");
  EXPECT_EQ(said({kBracket, kEnd, kWrong, kLetter}), "|||\uFFFD\uFFFDb|");
  EXPECT_EQ(said({kLetter, kFirstOfTwo, kSecondOfTwo, kDog}), "b|||é dog|");
  EXPECT_EQ(said({kFirstOfTwo, kSecondOfTwo, kWrong}), "|||\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(said({kLetter, kBracket}), "b||[");
}

TEST_F(TextStreams, StopAtOnceAtTheTextOfAByte) {
  const std::vector<std::string> stop = {"\n"};
  TextStream stream(tokenizer(kByteFallback), stop);
  EXPECT_EQ(stream.push(kCute), "cute");
  EXPECT_EQ(stream.push(kLine), "");
  EXPECT_TRUE(stream.has_stopped());
  EXPECT_EQ(stream.text(), "cute");
}

}  // namespace
}  // namespace fullshard::testing
