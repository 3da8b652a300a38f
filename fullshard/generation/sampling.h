// SPDX-License-Identifier: Apache-2.0
// From the scores of all tokens to one token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fullshard/generation/options.h"

namespace fullshard::generation {

// Whether a softmax makes probabilities of them: none is NaN or plus infinity, and at least one is
// finite.
bool have_probabilities(std::span<const float> scores);

// The first of the highest.
int64_t likeliest_token(std::span<const float> scores);

// A token that may be drawn, and its share of the probability of all of them.
struct Candidate {
  int64_t token = 0;
  double probability = 0;
};

// What temperature, top_k, top_p and min_p leave, in this order, by ascending token. Tokens with a
// score of minus infinity are never among them, unless all have it.
std::vector<Candidate> candidates_of(std::span<const float> scores, const GenerateOptions& options);

// The candidate in whose interval of the cumulative probabilities `uniform`, in [0, 1), falls.
int64_t drawn_token(std::span<const Candidate> candidates, double uniform);

// log(sum(exp(scores))).
double log_sum_exp(std::span<const float> scores);

}  // namespace fullshard::generation
