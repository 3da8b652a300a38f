// SPDX-License-Identifier: Apache-2.0
// Attention of one new token per row, all in one kernel: its query and key are turned, its key and
// value are stored, and its query looks at its row of the cache. Where a row stands is read on the
// device, so that a graph of this can be played again.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"
#include "fullshard/ops/cuda/rotate_rows.h"

namespace fullshard::ops {

// A row whose position the cache or the table does not have gets NaN, and the cache is left alone.
struct StepAttentionRows {
  void* output;      // [rows, heads * D]
  const void* rows;  // [rows, query | key | value], D elements for each head
  void* keys;        // [rows, kv_heads, capacity, D]
  void* values;
  const int64_t* positions;  // [rows], the number of the new token in its row
  const float* cosines;      // [num_positions, D / 2]; null: nothing is turned
  const float* sines;
  int64_t num_positions;
  int64_t num_rows;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t width;  // D: 32, 64, 128 or 256
  int64_t capacity;
  int64_t window;  // only that many last keys; 0: all
  float scale;
};

// All but tables and positions is of `dtype`.
void attend_step(const StepAttentionRows& step, KernelDtype dtype, tensor::DeviceStream stream);

}  // namespace fullshard::ops
