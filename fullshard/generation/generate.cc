// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/generate.h"

#include <algorithm>
#include <span>

#include "fullshard/base/error.h"
#include "fullshard/generation/batch_context.h"

namespace fullshard {
namespace {

void check_prompt(const GeneratePrompt& prompt, const TokenModel& model) {
  const auto length = static_cast<int64_t>(prompt.tokens.size());
  const int64_t most = model.max_positions();
  if (length == 0) {
    fail_as(ErrorKind::input, "prompt {}: has no tokens; give at least one", prompt.number);
  }
  if (most > 0 && length >= most) {
    fail_as(ErrorKind::input,
            "prompt {}: has {} tokens, but the model has {} positions, which leaves none for the "
            "answer; cut the prompt",
            prompt.number, length, most);
  }
  for (const int64_t token : prompt.tokens) {
    if (token < 0 || token >= model.vocabulary()) {
      fail_as(ErrorKind::input,
              "prompt {}: token {}, but the model's vocabulary has {}; use its own tokenizer",
              prompt.number, token, model.vocabulary());
    }
  }
}

}  // namespace

NonFiniteLogits::NonFiniteLogits(int64_t prompt, int64_t num_new)
    : Error(fmt::format(
          "prompt {}: after {} new tokens the model's logits are NaN or infinite: its weights are "
          "not finite, or too large for their dtype; check them, or compute in a wider one",
          prompt, num_new)) {}

void check_prompts(const TokenModel& model, const std::vector<GeneratePrompt>& prompts) {
  for (const GeneratePrompt& prompt : prompts) check_prompt(prompt, model);
}

std::vector<GeneratedSequence> generate(TokenModel& model,
                                        const std::vector<GeneratePrompt>& prompts,
                                        const GenerateOptions& options, const Tokenizer* tokenizer,
                                        const GenerateCallbacks& callbacks) {
  check_generate_options(options);
  if (!options.stop.empty() && tokenizer == nullptr) {
    fail_as(ErrorKind::usage, "generate: stop texts need a tokenizer; give one");
  }
  check_prompts(model, prompts);
  std::vector<GeneratedSequence> results;
  for (size_t first = 0; first < prompts.size(); first += static_cast<size_t>(options.batch)) {
    const size_t count = std::min(static_cast<size_t>(options.batch), prompts.size() - first);
    const generation::BatchContext batch{model, std::span(prompts).subspan(first, count), options,
                                         tokenizer, callbacks};
    auto made = options.num_beams > 1 ? generation::search_beams(batch)
                                      : generation::generate_tokens(batch);
    std::ranges::move(made, std::back_inserter(results));
  }
  return results;
}

}  // namespace fullshard
