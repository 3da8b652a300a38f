// SPDX-License-Identifier: Apache-2.0
// Attention of one query of one head to keys and values that lie side by side.
#pragma once

#include <cstdint>

namespace fullshard::ops {

template <class Stored>
struct SingleQuery {
  Stored* output = nullptr;  // [width]
  const Stored* query = nullptr;
  const Stored* keys = nullptr;  // [num_keys, width]
  const Stored* values = nullptr;
  const Stored* bias = nullptr;  // [num_keys], added to the scores; may be null
  int64_t num_keys = 0;          // at least one
  int64_t width = 0;
  float scale = 1;
  float* scratch = nullptr;  // [num_keys + 2 * width]
};

template <class Stored>
void attend(const SingleQuery<Stored>& single);

}  // namespace fullshard::ops
