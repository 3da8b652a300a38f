// SPDX-License-Identifier: Apache-2.0
// Files that are cut short or changed: an Error of the kind input, or a tokenizer that works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "fullshard/base/error.h"
#include "fullshard/text/files/json_node.h"
#include "fullshard/text/files/sentencepiece.h"
#include "fullshard/text/files/tokenizer_json.h"
#include "fullshard/text/pipeline/tokenizer.h"
#include "fullshard/text/unicode/utf8.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/text/fixtures.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kText =
    "Hello, world! It's 12 caf\u00e9 \u4e2d\u6587 <s> [CLS] \U0001F600\n\n x";

void use(text::PipelineParts parts) {
  const auto tokenizer = text::make_pipeline(std::move(parts));
  for (const int32_t id : tokenizer->encode(kText, true)) EXPECT_GE(id, 0);
  tokenizer->decode({0, 1, 2, 300, 1 << 30, -1}, false);
}

// Runs the reader on many changed copies; nothing but Error may come out.
template <class Read>
void expect_only_errors(const std::string& bytes, int rounds, const Read& read) {
  std::mt19937 random(3);
  int num_errors = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string changed = bytes;
    const auto place = [&] { return random() % changed.size(); };
    if (round % 3 == 0) {
      changed.resize(place());
    } else {
      for (int i = 0; i < 1 + round % 4; ++i) changed[place()] = static_cast<char>(random() % 256);
    }
    try {
      read(changed);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
      ++num_errors;
    }
  }
  EXPECT_GT(num_errors, rounds / 4);
}

void read_json_bytes(const std::string& bytes) {
  nlohmann::json tree;
  try {
    tree = nlohmann::json::parse(bytes);
  } catch (const nlohmann::json::exception&) {
    fail_as(ErrorKind::input, "not JSON");
  }
  use(text::read_tokenizer_json(text::JsonNode(tree, "")));
}

TEST(Hostile, TokenizerJsonCutShortOrChanged) {
  for (const char* family : {"llama3", "llama2", "bert_cased"}) {
    expect_only_errors(read_file(fixture(std::string(family) + "/tokenizer.json")), 60,
                       read_json_bytes);
  }
}

// Every value of the tree, one after the other, becomes something else.
TEST(Hostile, TokenizerJsonWithOtherTypes) {
  auto tree = nlohmann::json::parse(read_file(fixture("llama2/tokenizer.json")));
  tree["model"]["vocab"] = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"a", 3}, {"b", 4}, {"ab", 5}};
  tree["model"]["merges"] = {"a b"};
  const nlohmann::json flat = tree.flatten();
  int num_errors = 0;
  for (const auto& [path, value] : flat.items()) {
    for (const nlohmann::json& other :
         {nlohmann::json(nullptr), nlohmann::json(-5), nlohmann::json(1e300), nlohmann::json("x"),
          nlohmann::json::array(), nlohmann::json::object(), nlohmann::json(true)}) {
      auto changed = tree;
      changed[nlohmann::json::json_pointer(path)] = other;
      try {
        use(text::read_tokenizer_json(text::JsonNode(changed, "")));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
        ++num_errors;
      }
    }
  }
  EXPECT_GT(num_errors, 100);
}

TEST(Hostile, SequencesInSequences) {
  nlohmann::json step = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) step = {{"type", "Sequence"}, {"normalizers", {step}}};
  EXPECT_THROW(text::read_normalizer(text::JsonNode(step, "normalizer")), Error);
}

// A tokenizer.json of a few characters with these parts.
nlohmann::json small_tokenizer(const nlohmann::json& parts) {
  nlohmann::json root = {{"version", "1.0"},
                         {"model",
                          {{"type", "BPE"},
                           {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}}},
                           {"merges", nlohmann::json::array()}}}};
  root.update(parts);
  return root;
}

nlohmann::json repeated(const nlohmann::json& step, int times, const std::string& key) {
  return {{"type", "Sequence"}, {key, std::vector<nlohmann::json>(times, step)}};
}

std::string encoding_error(const nlohmann::json& parts, const std::string& text) {
  const auto root = small_tokenizer(parts);
  const auto tokenizer = text::make_pipeline(text::read_tokenizer_json(text::JsonNode(root, "")));
  return message_of([&] { tokenizer->encode(text, true); });
}

TEST(Hostile, StepsMakeNoMoreOfATextThanALimit) {
  const nlohmann::json doubling = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const std::string text(50'000, 'a');
  EXPECT_EQ(encoding_error({{"normalizer", repeated(doubling, 40, "normalizers")}}, text),
            "makes more than 1200000 bytes of a text of 50000 bytes; a tokenizer may make 24 times "
            "as many, or 1048576, whichever is more");
  // In one step, as it writes.
  auto huge = doubling;
  huge["content"] = std::string(1 << 20, 'a');
  EXPECT_THAT(encoding_error({{"normalizer", huge}}, text), HasSubstr("makes more than 1200000"));
  // For the parts between added tokens, together.
  const nlohmann::json prepending = {{"type", "Prepend"}, {"prepend", std::string(1000, 'a')}};
  const nlohmann::json added = {{{"id", 1}, {"content", "b"}, {"normalized", false}}};
  std::string parts;
  for (int i = 0; i < 10'000; ++i) parts += "ab";
  EXPECT_THAT(encoding_error({{"normalizer", prepending}, {"added_tokens", added}}, parts),
              HasSubstr("makes more than 1048576 bytes of a text of 20000 bytes"));
  // For letters written as bytes, again and again.
  const auto alphabet = repeated({{"type", "ByteLevel"}}, 40, "pretokenizers");
  std::string accents;
  for (int i = 0; i < 1000; ++i) accents += "\u00e9";
  EXPECT_THAT(encoding_error({{"pre_tokenizer", alphabet}}, accents),
              HasSubstr("makes more than 1048576 bytes of a text of 2000 bytes"));
}

TEST(Hostile, PostProcessorsMakeNoMoreTokensThanALimit) {
  const nlohmann::json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto processor = [&](int times) -> nlohmann::json {
    return {{"post_processor",
             {{"type", "TemplateProcessing"},
              {"single", std::vector<nlohmann::json>(times, sequence)},
              {"pair", nlohmann::json::array()},
              {"special_tokens", nlohmann::json::object()}}}};
  };
  const std::string text(4000, 'a');
  EXPECT_EQ(encoding_error(processor(2), text), "no error");
  EXPECT_THAT(encoding_error(processor(100'000), text),
              HasSubstr("makes more than 1048576 tokens of a text of 4000 bytes"));
}

TEST(Hostile, DecodersMakeNoMoreOfTokensThanALimit) {
  const nlohmann::json doubling = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const auto root = small_tokenizer({{"decoder", repeated(doubling, 40, "decoders")}});
  const auto tokenizer = text::make_pipeline(text::read_tokenizer_json(text::JsonNode(root, "")));
  EXPECT_THAT(message_of([&] {
                tokenizer->decode({0, 0, 0, 0});
              }),
              HasSubstr("makes more than 1048576 bytes of a text of 4 bytes"));
}

TEST(Hostile, WhatFailsInUseNamesTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("tokenizer.json");
  const auto said = [&](const nlohmann::json& parts, const std::string& text) {
    std::ofstream(path) << small_tokenizer(parts);
    return message_of([&] { load_tokenizer(folder.path())->encode(text, true); });
  };
  const nlohmann::json split = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a+)+b"}}}, {"behavior", "Isolated"}};
  try {
    text::pcre_pattern("a");
    EXPECT_EQ(said({{"pre_tokenizer", split}}, std::string(60, 'a') + "c aab"),
              path + ": regular expression \"(a+)+b\": match limit exceeded");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("this build has no PCRE2"));
  }
  const nlohmann::json prepend = {{"type", "Prepend"}, {"prepend", std::string(2 << 20, 'a')}};
  EXPECT_THAT(said({{"normalizer", prepend}}, "a"), HasSubstr(path + ": makes more than 1048576"));
}

TEST(Hostile, SentencePieceModelCutShortOrChanged) {
  for (const char* family : {"llama2_model", "t5_model"}) {
    const auto whole = read_file(fixture(std::string(family) + "/spiece.model"));
    // The pieces come first; changes there are the interesting ones.
    expect_only_errors(whole.substr(0, 6000), 300, [](const std::string& bytes) {
      use(text::sentencepiece_parts(text::parse_sentencepiece(bytes), {}));
    });
  }
}

TEST(Hostile, CharsmapChanged) {
  auto file = text::parse_sentencepiece(read_file(fixture("t5_model/spiece.model")));
  const std::string charsmap = file.charsmap;
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    file.charsmap = charsmap;
    for (int i = 0; i < 2000; ++i) {
      file.charsmap[4 + random() % 100000] = static_cast<char>(random() % 256);
    }
    for (const auto& normalizer :
         {text::sentencepiece_normalizer(file).release(),
          text::precompiled_normalizer(text::Charsmap(file.charsmap)).release()}) {
      std::string text(kText);
      normalizer->apply(text);
      EXPECT_TRUE(text::is_valid_utf8(text));
      delete normalizer;
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
