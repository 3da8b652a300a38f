// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/kernels/cached_attention_kernels.h"

#include <algorithm>

#include "fullshard/base/vectorised.h"
#include "fullshard/ops/kernels/lane_sum.h"
#include "fullshard/ops/kernels/vector_exp.h"
#include "fullshard/ops/kernels/vector_lanes.h"

namespace fullshard::ops {
namespace {

constexpr int64_t kKeysAtOnce = 4;

[[gnu::always_inline]] inline void score_keys(const SingleQuery& single, float* scores,
                                              const float* query) {
  int64_t key = 0;
  for (; key + kKeysAtOnce <= single.num_keys; key += kKeysAtOnce) {
    dot_products<kKeysAtOnce>(scores + key, single.keys + key * single.width, query, single.width);
  }
  for (; key < single.num_keys; ++key) {
    dot_products<1>(scores + key, single.keys + key * single.width, query, single.width);
  }
}

// Several values in one pass over the sums, which are added in the order of the keys all the same.
[[gnu::always_inline]] inline void mix_values(const SingleQuery& single, float* __restrict mixed,
                                              const float* __restrict shares) {
  const int64_t width = single.width;
  for (int64_t i = 0; i < width; ++i) mixed[i] = 0;
  int64_t key = 0;
  for (; key + kKeysAtOnce <= single.num_keys; key += kKeysAtOnce) {
    const float* __restrict value = single.values + key * width;
    const float first = shares[key], second = shares[key + 1];
    const float third = shares[key + 2], fourth = shares[key + 3];
    for (int64_t i = 0; i < width; ++i) {
      float sum = mixed[i] + first * value[i];
      sum += second * value[width + i];
      sum += third * value[2 * width + i];
      mixed[i] = sum + fourth * value[3 * width + i];
    }
  }
  for (; key < single.num_keys; ++key) {
    const float* __restrict value = single.values + key * width;
    for (int64_t i = 0; i < width; ++i) mixed[i] += shares[key] * value[i];
  }
}

FULLSHARD_VECTORISED void attend_to_all(const SingleQuery& single) {
  const int64_t width = single.width, num_keys = single.num_keys;
  float* __restrict scores = single.scratch;
  float* __restrict query = scores + num_keys;
  float* __restrict mixed = query + width;
  for (int64_t i = 0; i < width; ++i) query[i] = single.query[i] * single.scale;
  score_keys(single, scores, query);
  if (single.bias != nullptr) {
    for (int64_t key = 0; key < num_keys; ++key) scores[key] += single.bias[key];
  }
  const float highest = *std::max_element(scores, scores + num_keys);
  for (int64_t key = 0; key < num_keys; ++key) scores[key] = vector_exp(scores[key] - highest);
  const float sum = lane_sum(num_keys, [scores](int64_t key) { return scores[key]; });
  mix_values(single, mixed, scores);
  for (int64_t i = 0; i < width; ++i) single.output[i] = mixed[i] / sum;
}

}  // namespace

void attend(const SingleQuery& single) { attend_to_all(single); }

}  // namespace fullshard::ops
