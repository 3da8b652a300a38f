// SPDX-License-Identifier: Apache-2.0
// What one or several weights made of the same rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fullshard::ops {

// Either one tensor with the outputs of all weights side by side in its last dimension, or a tensor
// per weight: GPU kernels work on the former, and the CPU would pay for it with a copy.
struct Projected {
  at::Tensor packed = {};
  std::vector<at::Tensor> parts = {};  // when `packed` is undefined

  const at::Tensor& first() const { return packed.defined() ? packed : parts.front(); }
};

}  // namespace fullshard::ops
