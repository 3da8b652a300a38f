// SPDX-License-Identifier: Apache-2.0
// Adds rows into the rows of a table that their indices name, in a fixed order.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

struct SegmentRows {
  KernelDtype dtype;
  float* table;           // [.., width]
  const void* rows;       // [num_rows, width]
  const int64_t* sorted;  // the indices into the table, ascending
  const int64_t* order;   // sorted[i] is the index of row order[i]; equal ones in ascending order
  int64_t num_rows;
  int64_t width;
  int64_t skipped;  // an index whose rows are passed over; -1: none
  float* partials;  // 2 x num_segment_chunks (partial_rows.h) x width
};

void add_segments(const SegmentRows& rows, tensor::DeviceStream stream);

}  // namespace fullshard::ops
