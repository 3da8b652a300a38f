// SPDX-License-Identifier: Apache-2.0
// Text from a model:
//
//   CachedLanguageModel model(*language_model);
//   const auto results = generate(model, {{.tokens = tokenizer->encode(text, /*special=*/true)}},
//                                 options, tokenizer.get());
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/generation/options.h"
#include "fullshard/generation/sequence.h"
#include "fullshard/generation/token_model.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard {

// Ids of tokens, also as a tokenizer gives them.
struct PromptTokens : std::vector<int64_t> {
  using std::vector<int64_t>::vector;
  PromptTokens(std::vector<int64_t> ids) : vector(std::move(ids)) {}
  PromptTokens(const std::vector<int32_t>& ids) : vector(ids.begin(), ids.end()) {}
};

struct GeneratePrompt {
  PromptTokens tokens = {};
  // Its number among all prompts of a job, which other ranks and batches share: with the seed it
  // says what is drawn.
  int64_t number = 0;
};

// A token as soon as it is chosen. Beam search, which may still change its mind, gives none.
struct TokenEvent {
  int64_t prompt = 0;
  int64_t sequence = 0;
  int64_t token = 0;
  std::string_view text = {};  // that became certain with it
  bool is_last = false;
};

struct GenerateCallbacks {
  std::function<void(const TokenEvent&)> on_token = {};
  // Before every step of the model. An exception ends the call and passes through it.
  std::function<void()> on_step = {};
};

// A model's logits for a sequence are NaN or infinite: no token can be chosen. Thrown between two
// steps of the model, so that a rank whose passes others take part in can still serve them
// (CachedLanguageModel::serve_others).
class NonFiniteLogits : public Error {
 public:
  NonFiniteLogits(int64_t prompt, int64_t num_new);
};

// Throws for the first prompt that is empty, longer than the model's positions leave room for, or
// holds a token that is not the model's; of kind input.
void check_prompts(const TokenModel& model, const std::vector<GeneratePrompt>& prompts);

// The sequences of all prompts, in their order, num_return_sequences of each. Without a tokenizer
// there are no texts, and stop texts are an Error. Where the model's positions leave room for some
// tokens only, the sequence ends there by its length. Prompts are checked first. Logits that are
// not finite are an Error, NonFiniteLogits.
//
// The tokens of a sequence depend on its prompt, its number, the options and the seed. On the CPU
// what a step computes in fp32 has the same bits in every batch of up to 32 rows; prompts are read
// together, where libtorch's products may round otherwise for other sizes.
std::vector<GeneratedSequence> generate(TokenModel& model,
                                        const std::vector<GeneratePrompt>& prompts,
                                        const GenerateOptions& options,
                                        const Tokenizer* tokenizer = nullptr,
                                        const GenerateCallbacks& callbacks = {});

}  // namespace fullshard
