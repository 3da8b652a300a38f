// SPDX-License-Identifier: Apache-2.0
// Each normalizer, pre-tokenizer and decoder alone, compared with the Python package's.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/text/files/package_number.h"
#include "fullshard/text/files/tokenizer_json.h"
#include "tests/text/fixtures.h"

namespace fullshard::testing {
namespace {

const nlohmann::json& recorded() {
  static const auto tree = nlohmann::json::parse(read_file(fixture("parts.json")));
  return tree;
}

// Reads a part; absent if only PCRE2 could and this build has none.
template <class Read>
auto read_unless_pcre(const Read& read) -> decltype(read()) {
  try {
    return read();
  } catch (const Error& error) {
    if (std::string(error.what()).find("no PCRE2") == std::string::npos) throw;
    return nullptr;
  }
}

std::vector<std::string> words_of(const text::PreTokenizer& pre_tokenizer,
                                  const std::string& text) {
  text::Pieces pieces;
  pieces.text = text;
  if (!text.empty())
    pieces.list.push_back({0, static_cast<uint32_t>(text.size()), text::TextPiece::kWord, true});
  pre_tokenizer.apply(pieces);
  std::vector<std::string> words;
  for (const text::TextPiece& piece : pieces.list) words.emplace_back(pieces.of(piece));
  return words;
}

TEST(Parts, NormalizersDoAsThePythonPackage) {
  const auto inputs = recorded()["inputs"].get<std::vector<std::string>>();
  ASSERT_EQ(recorded()["normalizers"].size(), 19U);
  for (const auto& entry : recorded()["normalizers"]) {
    const auto normalizer = read_unless_pcre(
        [&] { return text::read_normalizer(text::JsonNode(entry["json"], "normalizer")); });
    if (normalizer == nullptr) continue;
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::string text = inputs[i];
      normalizer->apply(text);
      EXPECT_EQ(text, entry["outputs"][i].get<std::string>())
          << entry["json"] << " on " << inputs[i];
    }
  }
}

TEST(Parts, PreTokenizersDoAsThePythonPackage) {
  const auto inputs = recorded()["inputs"].get<std::vector<std::string>>();
  ASSERT_EQ(recorded()["pre_tokenizers"].size(), 30U);
  for (const auto& entry : recorded()["pre_tokenizers"]) {
    const auto pre_tokenizer = read_unless_pcre([&] {
      return text::read_pre_tokenizer(text::JsonNode(entry["json"], "pre_tokenizer"),
                                      /*as_bytes=*/false);
    });
    if (pre_tokenizer == nullptr) continue;
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(words_of(*pre_tokenizer, inputs[i]),
                entry["outputs"][i].get<std::vector<std::string>>())
          << entry["json"] << " on " << inputs[i];
    }
  }
}

TEST(Parts, DecodersDoAsThePythonPackage) {
  ASSERT_EQ(recorded()["decoders"].size(), 11U);
  for (const auto& entry : recorded()["decoders"]) {
    const auto decoder = read_unless_pcre(
        [&] { return text::read_decoder(text::JsonNode(entry["json"], "decoder")); });
    if (decoder == nullptr) continue;
    for (size_t i = 0; i < recorded()["tokens"].size(); ++i) {
      auto tokens = recorded()["tokens"][i].get<std::vector<std::string>>();
      decoder->apply(tokens);
      std::string text;
      for (const auto& token : tokens) text += token;
      EXPECT_EQ(text, entry["outputs"][i].get<std::string>()) << entry["json"] << " on " << i;
    }
  }
}

// The package reads 40 of T5's scores wrong in their last bit; the recording has these by id.
TEST(Parts, ScoresOfT5AreReadAsInThePackage) {
  const auto off = nlohmann::json::parse(read_file(fixture("t5/scores.json")));
  const auto tree = nlohmann::json::parse(read_file(fixture("t5/tokenizer.json")));
  EXPECT_EQ(off.size(), 40u);
  size_t id = 0;
  for (const auto& entry : tree["model"]["vocab"]) {
    const auto written = entry[1].get<double>();
    const auto found = off.find(std::to_string(id++));
    EXPECT_EQ(text::as_package_reads(written), found == off.end() ? written : found->get<double>())
        << entry[0];
  }
}

// The values of tokenizers 0.23.3 after reading these digits.
TEST(Parts, NumbersAreOffAsInThePackage) {
  EXPECT_EQ(text::as_package_reads(-7.3794149920769705), -0x1.d84855d1a54adp+2);
  EXPECT_EQ(text::as_package_reads(-7.4505113370076135), -0x1.dcd52d80bb321p+2);
  EXPECT_EQ(text::as_package_reads(-9.991468117376867), -0x1.3fba1b5865218p+3);
  EXPECT_EQ(text::as_package_reads(-7.58175641665984), -7.58175641665984);
  EXPECT_EQ(text::as_package_reads(-0.5), -0.5);
  EXPECT_EQ(text::as_package_reads(0), 0);
}

// If they were read correctly, both sums would round so that "XX" + "X" wins.
TEST(Parts, TiesOfUnigramAreDecidedAsInThePackage) {
  const auto tree = nlohmann::json::parse(R"({"model": {"type": "Unigram", "unk_id": 0, "vocab":
      [["<unk>", 0.0], ["▁lib", -8.929178890992258], ["X", -8.44577456457019],
       ["XX", -9.991468117376867]]}})");
  const auto tokenizer = text::make_pipeline(text::read_tokenizer_json(text::JsonNode(tree, "")));
  EXPECT_EQ(tokenizer->encode("▁libXXX", true), (std::vector<int32_t>{1, 2, 3}));
}

std::string refusal_of_part(const std::string& json) {
  const auto tree = nlohmann::json::parse(json);
  try {
    text::read_tokenizer_json(text::JsonNode(tree, ""));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

TEST(Parts, WhatIsNotKnownIsRefusedByItsPath) {
  const std::string model = R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]})";
  EXPECT_EQ(refusal_of_part("{" + model + "}"), "accepted");
  EXPECT_EQ(refusal_of_part("{" + model + R"(,"pre_tokenizer":{"type":"UnicodeScripts"}})"),
            "pre_tokenizer.type: \"UnicodeScripts\" is not supported");
  EXPECT_EQ(refusal_of_part("{" + model +
                            R"(,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},
                                   {"type":"Lowercase","locale":"tr"}]}})"),
            "normalizer.normalizers[1]: unknown option \"locale\"");
  EXPECT_EQ(refusal_of_part("{" + model + R"(,"decoder":{"type":"CTC"}})"),
            "decoder.type: \"CTC\" is not supported");
  EXPECT_EQ(refusal_of_part(R"({"model":{"type":"WordLevel","vocab":{}}})"),
            "model.type: \"WordLevel\" is not supported");
  EXPECT_EQ(
      refusal_of_part(R"({"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}})"),
      "model.dropout: 0.1 is not supported, expected none");
  EXPECT_EQ(refusal_of_part(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})"),
            "model.merges: merge 0 needs \"b\", which is not in the vocabulary");
  EXPECT_EQ(refusal_of_part(R"({"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":1}})"),
            "model.unk_id: is 1, but there are 1 tokens");
  EXPECT_EQ(refusal_of_part("{" + model + R"(,"extra":1})"),
            "the top level: unknown option \"extra\"");
}

}  // namespace
}  // namespace fullshard::testing
