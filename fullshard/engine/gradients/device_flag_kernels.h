// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::engine {

// flag[0] = 1 when the floating tensor, of the same GPU, holds an infinity or NaN.
void raise_flag(const at::Tensor& flag, const at::Tensor& tensor);

}  // namespace fullshard::engine
