// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding on rows that hold the heads of queries, keys and values side by side.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

// The angles of every row. Row t is position t % sequence, or positions[t]. What the table has no
// angles for becomes NaN.
struct RotaryRows {
  const float* cosines;  // [num_positions, half], null: nothing is turned
  const float* sines;
  int64_t num_positions;
  const int64_t* positions;  // null: by place
  int64_t sequence;
  int64_t half;  // of a head's width
};

// Turns the first `num_turned` heads of every row in place; `sign` is -1 to turn back.
void rotate_rows(void* rows, KernelDtype dtype, int64_t num_rows, int64_t row_stride,
                 int64_t num_turned, const RotaryRows& rotary, float sign,
                 tensor::DeviceStream stream);

// The heads of several tensors, each with rows side by side.
struct HeadSources {
  const void* query;
  const void* key;
  const void* value;
  int64_t num_heads;     // of query
  int64_t num_kv_heads;  // of key, and of value
};

// Rows query | key | value side by side, the first two turned back.
void pack_and_turn_back(void* rows, KernelDtype dtype, int64_t num_rows, const HeadSources& sources,
                        const RotaryRows& rotary, tensor::DeviceStream stream);

}  // namespace fullshard::ops
