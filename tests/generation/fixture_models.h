// SPDX-License-Identifier: Apache-2.0
// Tiny models of tests/fixtures/models, ready to generate.
#pragma once

#include <memory>
#include <string>

#include "fullshard/generation/generate.h"
#include "fullshard/models/common/language_model.h"
#include "tests/models/decoder_cases.h"

namespace fullshard::testing {

inline std::shared_ptr<LanguageModel> load_generator(const std::string& folder) {
  auto model = load_decoder(folder);
  model->eval();
  return model;
}

inline std::vector<GeneratePrompt> numbered(const std::vector<std::vector<int64_t>>& prompts) {
  std::vector<GeneratePrompt> result;
  for (const auto& tokens : prompts) {
    result.push_back({tokens, static_cast<int64_t>(result.size())});
  }
  return result;
}

inline std::vector<std::vector<int64_t>> tokens_of(const std::vector<GeneratedSequence>& results) {
  std::vector<std::vector<int64_t>> tokens;
  for (const auto& result : results) tokens.push_back(result.tokens);
  return tokens;
}

}  // namespace fullshard::testing
