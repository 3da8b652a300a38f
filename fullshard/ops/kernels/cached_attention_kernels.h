// SPDX-License-Identifier: Apache-2.0
// Attention of one query of one head to keys and values that lie side by side.
#pragma once

#include <cstdint>

namespace fullshard::ops {

struct SingleQuery {
  float* output = nullptr;  // [width]
  const float* query = nullptr;
  const float* keys = nullptr;  // [num_keys, width]
  const float* values = nullptr;
  const float* bias = nullptr;  // [num_keys], added to the scores; may be null
  int64_t num_keys = 0;         // at least one
  int64_t width = 0;
  float scale = 1;
  float* scratch = nullptr;  // [num_keys + 2 * width]
};

void attend(const SingleQuery& single);

}  // namespace fullshard::ops
