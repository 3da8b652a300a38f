// SPDX-License-Identifier: Apache-2.0
// Memory that others write through torch's operators, and whether they did.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::tensor {

// A leaf over the memory of `values`, which is contiguous and outlives it. Its version counts the
// writes through it, through its views and, unlike that of other tensors, through data(), as
// several of torch's optimizers write.
at::Tensor watched_alias(const at::Tensor& values);

}  // namespace fullshard::tensor
