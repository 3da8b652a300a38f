// SPDX-License-Identifier: Apache-2.0
// Token ids against those of transformers (tests/fixtures/generation/make_generation.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/generate.h"
#include "tests/files.h"
#include "tests/generation/fixture_models.h"

namespace fullshard::testing {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::vector<int64_t>>;

const json& fixture() {
  static const json found =
      json::parse(read_file(FULLSHARD_SOURCE_DIR "/tests/fixtures/generation/generation.json"));
  return found;
}

GenerateOptions options_of(const json& given) {
  GenerateOptions options;
  options.max_new_tokens = given.at("max_new_tokens");
  options.min_new_tokens = given.value("min_new_tokens", 0);
  options.eos_tokens = given.value("eos_token_id", std::vector<int64_t>());
  options.repetition_penalty = given.value("repetition_penalty", 1.0);
  options.no_repeat_ngram_size = given.value("no_repeat_ngram_size", 0);
  options.num_beams = given.value("num_beams", 1);
  options.num_return_sequences = given.value("num_return_sequences", 1);
  options.length_penalty = given.value("length_penalty", 1.0);
  const json early = given.value("early_stopping", json(false));
  options.early_stopping = early == true      ? EarlyStopping::at_once
                           : early == "never" ? EarlyStopping::never
                                              : EarlyStopping::heuristic;
  return options;
}

class TransformersTokens : public ::testing::TestWithParam<std::string> {};

TEST_P(TransformersTokens, AreOursInOneBatchOfUnequalPrompts) {
  const auto model = load_generator(GetParam());
  CachedLanguageModel cached(*model);
  const json& found = fixture().at(GetParam());
  const auto prompts = numbered(found.at("prompts").get<Tokens>());
  for (const json& one : found.at("cases")) {
    const auto results = generate(cached, prompts, options_of(one.at("options")));
    EXPECT_EQ(tokens_of(results), one.at("results").get<Tokens>()) << one.at("options");
    if (!one.contains("scores")) continue;
    ASSERT_EQ(results.size(), one.at("scores").size());
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_NEAR(results[i].score, one.at("scores")[i].get<double>(), 1e-4) << one.at("options");
    }
  }
}

TEST_P(TransformersTokens, AreOursWhateverTheBatchAndTheChunksOfPrompts) {
  const auto model = load_generator(GetParam());
  const json& found = fixture().at(GetParam());
  const auto prompts = numbered(found.at("prompts").get<Tokens>());
  for (const int64_t batch : {1, 3}) {
    CachedLanguageModel cached(*model, {.prefill_tokens = batch + 1});
    for (const size_t number : {0, 1, 8}) {
      const json& one = found.at("cases")[number];
      auto options = options_of(one.at("options"));
      options.batch = batch;
      EXPECT_EQ(tokens_of(generate(cached, prompts, options)), one.at("results").get<Tokens>())
          << one.at("options") << " batch " << batch;
    }
  }
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& [name, cases] : fixture().items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Folders, TransformersTokens, ::testing::ValuesIn(fixture_names()),
                         [](const auto& folder) { return folder.param; });

}  // namespace
}  // namespace fullshard::testing
