// SPDX-License-Identifier: Apache-2.0
// Rules that change the scores of the next token by what came before it, as transformers' logits
// processors do, and in their order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fullshard/generation/options.h"

namespace fullshard::generation {

// Scores of tokens that have appeared: above 0 divided, below 0 multiplied by the penalty.
void penalise_repetition(std::span<float> scores, std::span<const int64_t> context, double penalty);

// Forbids the tokens that would make the last `size` tokens appear a second time.
void forbid_repeated_ngrams(std::span<float> scores, std::span<const int64_t> context,
                            int64_t size);

void forbid_tokens(std::span<float> scores, std::span<const int64_t> tokens);

// All of them. `context` is everything that the rules see, of which the last `num_new` tokens are
// new.
void apply_rules(std::span<float> scores, std::span<const int64_t> context, int64_t num_new,
                 const GenerateOptions& options);

}  // namespace fullshard::generation
