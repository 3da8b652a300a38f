// SPDX-License-Identifier: Apache-2.0
// Equality with the Python packages: 5,000 strings of many scripts per family.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/base/base64.h"
#include "fullshard/text/files/sentencepiece_file.h"
#include "fullshard/text/pipeline/tokenizer.h"
#include "tests/text/fixtures.h"

namespace fullshard::testing {
namespace {

const std::vector<std::string>& strings() {
  static const auto all = recorded_strings();
  return all;
}

// Shows at most a few of the strings whose ids or decoded text differ.
void expect_equal(const Tokenizer& tokenizer, const std::vector<Recorded>& recorded) {
  int num_wrong = 0;
  for (size_t i = 0; i < recorded.size() && num_wrong < 5; ++i) {
    const auto ids = tokenizer.encode(strings()[i], true);
    const bool same_text = digest(tokenizer.decode(recorded[i].ids)) == recorded[i].decoded;
    num_wrong += ids != recorded[i].ids || !same_text;
    EXPECT_EQ(ids, recorded[i].ids) << "string " << i << ": \"" << strings()[i] << "\"";
    EXPECT_TRUE(same_text) << "string " << i << ": \"" << strings()[i] << "\" is decoded to \""
                           << tokenizer.decode(recorded[i].ids) << "\"";
  }
}

class Family : public ::testing::TestWithParam<std::string> {};

TEST_P(Family, EncodesAndDecodesAsThePythonPackage) {
  const auto recorded = recorded_ids(GetParam());
  ASSERT_EQ(recorded.size(), GetParam() == "llama2_metaspace" ? 1500U : 5000U);
  ASSERT_EQ(strings().size(), 5000U);
  expect_equal(*load_tokenizer(fixture(GetParam())), recorded);
}

INSTANTIATE_TEST_SUITE_P(Text, Family,
                         ::testing::Values("gpt2", "llama3", "qwen2", "bert_uncased", "bert_cased",
                                           "llama2", "llama2_metaspace", "llama2_model"),
                         [](const auto& family) { return family.param; });

// A tokenizer.json whose charsmap is that of t5_model, which is too large to be kept twice.
std::string t5_with_charsmap(const TemporaryFolder& folder) {
  auto tree = nlohmann::json::parse(read_file(fixture("t5/tokenizer.json")));
  const auto model = text::parse_sentencepiece(read_file(fixture("t5_model/spiece.model")));
  tree["normalizer"]["precompiled_charsmap"] = base::encode_base64(model.charsmap);
  const std::string path = folder.file("tokenizer.json");
  std::ofstream(path) << tree.dump();
  return path;
}

TEST(Families, T5EncodesAndDecodesAsThePythonPackage) {
  const TemporaryFolder folder;
  const auto recorded = recorded_ids("t5");
  ASSERT_EQ(recorded.size(), 5000U);
  expect_equal(*load_tokenizer(t5_with_charsmap(folder)), recorded);
}

// The library knows no <extra_id_0>, so strings with sentinels are not compared here.
TEST(Families, T5ModelEncodesAndDecodesAsTheLibrary) {
  const auto recorded = recorded_ids("t5_model");
  ASSERT_EQ(recorded.size(), 5000U);
  const auto tokenizer = load_tokenizer(fixture("t5_model/spiece.model"));
  int num_compared = 0;
  for (size_t i = 0; i < recorded.size(); ++i) {
    if (strings()[i].find("<extra_id_") != std::string::npos) continue;
    ++num_compared;
    ASSERT_EQ(tokenizer->encode(strings()[i], true), recorded[i].ids)
        << "string " << i << ": \"" << strings()[i] << "\"";
    ASSERT_EQ(digest(tokenizer->decode(recorded[i].ids)), recorded[i].decoded)
        << "string " << i << ": \"" << strings()[i] << "\"";
  }
  EXPECT_GE(num_compared, 4900);
}

// The same tokenizers, from the files in use before tokenizer.json.
TEST(Families, VocabularyFilesSayTheSameAsTokenizerJson) {
  const auto gpt2 = recorded_ids("gpt2");
  const auto from_files = load_tokenizer(fixture("gpt2/vocab.json"));
  const auto uncased = recorded_ids("bert_uncased"), cased = recorded_ids("bert_cased");
  const auto bert = load_tokenizer(fixture("bert_uncased/vocab.txt"));
  const auto bert_cased = load_tokenizer(fixture("bert_cased/vocab.txt"));
  for (size_t i = 0; i < 1500; ++i) {
    ASSERT_EQ(bert->encode(strings()[i], true), uncased[i].ids) << strings()[i];
    ASSERT_EQ(bert_cased->encode(strings()[i], true), cased[i].ids) << strings()[i];
    if (strings()[i].find("tool") != std::string::npos) continue;  // added tokens of the JSON only
    ASSERT_EQ(from_files->encode(strings()[i], true), gpt2[i].ids) << strings()[i];
  }
}

// An expression without an implementation of ours goes through PCRE2, whose Unicode may be older.
TEST(Families, AnyOtherExpressionGoesThroughPcre) {
  const auto recorded = recorded_ids("o200k");
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = load_tokenizer(fixture("o200k"));
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("this build has no PCRE2"), std::string::npos);
    GTEST_SKIP() << error.what();
  }
  int num_equal = 0;
  for (size_t i = 0; i < recorded.size(); ++i) {
    num_equal += tokenizer->encode(strings()[i], true) == recorded[i].ids;
  }
  EXPECT_GE(num_equal, 995);
}

}  // namespace
}  // namespace fullshard::testing
