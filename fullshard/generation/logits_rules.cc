// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/logits_rules.h"

#include <algorithm>
#include <limits>
#include <set>

namespace fullshard::generation {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

void forbid(std::span<float> scores, int64_t token) {
  if (token >= 0 && token < static_cast<int64_t>(scores.size())) {
    scores[static_cast<size_t>(token)] = kForbidden;
  }
}

}  // namespace

void penalise_repetition(std::span<float> scores, std::span<const int64_t> context,
                         double penalty) {
  const auto factor = static_cast<float>(penalty);
  for (const int64_t token : std::set<int64_t>(context.begin(), context.end())) {
    if (token < 0 || token >= static_cast<int64_t>(scores.size())) continue;
    float& score = scores[static_cast<size_t>(token)];
    score = score < 0 ? score * factor : score / factor;
  }
}

void forbid_repeated_ngrams(std::span<float> scores, std::span<const int64_t> context,
                            int64_t size) {
  const auto num_before = static_cast<size_t>(size - 1);
  if (context.size() <= num_before) return;
  const auto last = context.last(num_before);
  for (size_t first = 0; first + num_before < context.size(); ++first) {
    const auto earlier = context.subspan(first, num_before);
    if (std::ranges::equal(earlier, last)) forbid(scores, context[first + num_before]);
  }
}

void forbid_tokens(std::span<float> scores, std::span<const int64_t> tokens) {
  for (const int64_t token : tokens) forbid(scores, token);
}

void apply_rules(std::span<float> scores, std::span<const int64_t> context, int64_t num_new,
                 const GenerateOptions& options) {
  if (options.repetition_penalty != 1) {
    penalise_repetition(scores, context, options.repetition_penalty);
  }
  if (options.no_repeat_ngram_size > 0) {
    forbid_repeated_ngrams(scores, context, options.no_repeat_ngram_size);
  }
  if (num_new < options.min_new_tokens) forbid_tokens(scores, options.eos_tokens);
}

}  // namespace fullshard::generation
