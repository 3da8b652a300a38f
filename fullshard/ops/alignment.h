// SPDX-License-Identifier: Apache-2.0
// Where kernels may read and write 16 bytes at a time. What each fused operator takes, and what it
// does with the rest, is a table in ops/README.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fullshard::ops {

inline constexpr int64_t kPackBytes = 16;

// Views may begin anywhere.
inline bool begins_at_pack(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kPackBytes == 0;
}

// The same values from memory of their own where they do not begin so, or are not contiguous.
inline at::Tensor in_packs(const at::Tensor& tensor) {
  const auto dense = tensor.contiguous();
  return begins_at_pack(dense) ? dense : dense.clone();
}

}  // namespace fullshard::ops
