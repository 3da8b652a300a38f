// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace fullshard::generation {
namespace {

// While they are chosen, `probability` holds the score divided by the temperature.
std::vector<Candidate> likeliest_candidates(std::span<const float> scores,
                                            const GenerateOptions& options) {
  float lowest = -std::numeric_limits<float>::max();
  const auto most = static_cast<size_t>(options.top_k);
  if (most > 0 && most < scores.size()) {
    std::vector<float> sorted(scores.begin(), scores.end());
    const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(most - 1);
    std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
    lowest = std::max(lowest, *last);
  }
  std::vector<Candidate> candidates;
  for (size_t token = 0; token < scores.size(); ++token) {
    if (!(scores[token] >= lowest)) continue;
    candidates.push_back({static_cast<int64_t>(token), scores[token] / options.temperature});
  }
  if (candidates.empty()) candidates.push_back({likeliest_token(scores), 0});
  return candidates;
}

void scores_to_probabilities(std::vector<Candidate>& candidates) {
  double highest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const Candidate& one : candidates) highest = std::max(highest, one.probability);
  for (Candidate& one : candidates) sum += one.probability = std::exp(one.probability - highest);
  for (Candidate& one : candidates) one.probability /= sum;
}

// Takes the unlikeliest away, as long as together they have no more than 1 - top_p.
void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  std::ranges::stable_sort(candidates, {}, &Candidate::probability);
  double sum = 0;
  size_t first = 0;
  while (first + 1 < candidates.size()) {
    sum += candidates[first].probability;
    if (sum > 1 - top_p) break;
    ++first;
  }
  candidates.erase(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(first));
  std::ranges::sort(candidates, {}, &Candidate::token);
}

void keep_min_p(std::vector<Candidate>& candidates, double min_p) {
  const double least =
      min_p * std::ranges::max_element(candidates, {}, &Candidate::probability)->probability;
  std::erase_if(candidates, [least](const Candidate& one) { return one.probability < least; });
}

}  // namespace

bool have_probabilities(std::span<const float> scores) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool is_one_finite = false;
  for (const float score : scores) {
    if (!(score < kInfinity)) return false;
    is_one_finite = is_one_finite || score > -kInfinity;
  }
  return is_one_finite;
}

int64_t likeliest_token(std::span<const float> scores) {
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

std::vector<Candidate> candidates_of(std::span<const float> scores,
                                     const GenerateOptions& options) {
  auto candidates = likeliest_candidates(scores, options);
  scores_to_probabilities(candidates);
  if (options.top_p < 1) keep_top_p(candidates, options.top_p);
  if (options.min_p > 0) keep_min_p(candidates, options.min_p);
  double sum = 0;
  for (const Candidate& one : candidates) sum += one.probability;
  for (Candidate& one : candidates) one.probability /= sum;
  return candidates;
}

int64_t drawn_token(std::span<const Candidate> candidates, double uniform) {
  double sum = 0;
  for (const Candidate& one : candidates) {
    sum += one.probability;
    if (uniform < sum) return one.token;
  }
  return candidates.back().token;  // rounding left a little over
}

double log_sum_exp(std::span<const float> scores) {
  const double highest = *std::ranges::max_element(scores);
  double sum = 0;
  for (const float score : scores) sum += std::exp(static_cast<double>(score) - highest);
  return highest + std::log(sum);
}

}  // namespace fullshard::generation
