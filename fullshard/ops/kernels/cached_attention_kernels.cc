// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/kernels/cached_attention_kernels.h"

#include <algorithm>

#include "fullshard/base/vectorised.h"
#include "fullshard/ops/kernels/lane_sum.h"
#include "fullshard/ops/kernels/vector_exp.h"
#include "fullshard/ops/kernels/vector_lanes.h"

namespace fullshard::ops {
namespace {

FULLSHARD_VECTORISED void attend_to_all(const SingleQuery& single) {
  const int64_t width = single.width, num_keys = single.num_keys;
  float* __restrict scores = single.scratch;
  float* __restrict query = scores + num_keys;
  float* __restrict mixed = query + width;
  for (int64_t i = 0; i < width; ++i) query[i] = single.query[i] * single.scale;
  for (int64_t key = 0; key < num_keys; ++key) {
    dot_products<1>(scores + key, single.keys + key * width, query, width, width);
  }
  if (single.bias != nullptr) {
    for (int64_t key = 0; key < num_keys; ++key) scores[key] += single.bias[key];
  }
  const float highest = *std::max_element(scores, scores + num_keys);
  for (int64_t key = 0; key < num_keys; ++key) scores[key] = vector_exp(scores[key] - highest);
  const float sum = lane_sum(num_keys, [scores](int64_t key) { return scores[key]; });
  for (int64_t i = 0; i < width; ++i) mixed[i] = 0;
  for (int64_t key = 0; key < num_keys; ++key) {
    const float* __restrict value = single.values + key * width;
    const float share = scores[key];
    for (int64_t i = 0; i < width; ++i) mixed[i] += share * value[i];
  }
  for (int64_t i = 0; i < width; ++i) single.output[i] = mixed[i] / sum;
}

}  // namespace

void attend(const SingleQuery& single) { attend_to_all(single); }

}  // namespace fullshard::ops
