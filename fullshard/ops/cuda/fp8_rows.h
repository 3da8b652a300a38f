// SPDX-License-Identifier: Apache-2.0
// Matrices of bf16 as 8-bit numbers with one factor each: the largest magnitude of all elements
// becomes the largest number of the format.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/largest_parts.h"
#include "fullshard/tensor/device_stream.h"

namespace fullshard::ops {

// e4m3 reaches 448 with 3 bits behind the leading one, e5m2 57344 with 2.
enum class Fp8Kind : uint8_t { e4m3, e5m2 };

// parts[i] = largest magnitude among some of the values, or of those and parts[i] when it `joins`.
// NaN counts as larger than infinity.
void largest_values(float* parts, bool joins, const void* values, int64_t count,
                    tensor::DeviceStream stream);

struct Fp8Rows {
  const void* values = nullptr;  // bf16, dense, 16 bytes aligned
  int64_t num_rows = 0;
  int64_t width = 0;             // a multiple of 16
  const float* parts = nullptr;  // of their largest magnitude
  Fp8Kind kind = Fp8Kind::e4m3;
};

// Where they go, each null or not: as they lie (dense), and turned, rows as columns,
// `turned_stride` apart. Turned rows get zeros between num_rows and `turned_length`, the next
// multiple of 16.
struct Fp8Targets {
  void* rows = nullptr;
  void* turned = nullptr;
  int64_t turned_stride = 0;
  int64_t turned_length = 0;
  float* factor = nullptr;  // what 8-bit values are multiplied by to be the old ones again
};

void to_fp8_rows(const Fp8Targets& targets, const Fp8Rows& rows, tensor::DeviceStream stream);

}  // namespace fullshard::ops
