// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::stand_in {

// A tensor of the device as the device sees it: of the CPU, over the same memory. Others are
// themselves.
at::Tensor inside(const at::Tensor& tensor);

}  // namespace fullshard::stand_in
