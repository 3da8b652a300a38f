// SPDX-License-Identifier: Apache-2.0
// The gradients of the parameters of a linear layer, wherever they have to go.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fullshard/ops/products/device_fp8.h"

namespace fullshard::ops {

// output_gradient^T * input over all leading dimensions: written or added into the parameter's
// gradient sink when it has one, and then an undefined tensor is returned. `parameter` is the
// parameter itself: what an autograd node unpacks may be another tensor with its values.
at::Tensor weight_gradient(const at::Tensor& parameter, const at::Tensor& input,
                           const at::Tensor& output_gradient);

// The same for several parameters that read one input: output_gradient holds the gradients of their
// outputs side by side. Sinks that are neighbours in memory take one product. An undefined result
// also where `is_wanted` is false.
std::vector<at::Tensor> weight_gradients(const std::vector<at::Tensor>& parameters,
                                         const std::vector<bool>& is_wanted,
                                         const at::Tensor& input,
                                         const at::Tensor& output_gradient);

// The same in fp8, from both turned: the output's gradient [sum of N, M] and the input [K, M].
std::vector<at::Tensor> weight_gradients(const std::vector<at::Tensor>& parameters,
                                         const std::vector<bool>& is_wanted,
                                         const Fp8Operand& output_gradient,
                                         const Fp8Operand& input);

// The sum of the output's gradient over all rows, likewise; on the CPU it is always returned.
at::Tensor bias_gradient(const at::Tensor& parameter, const at::Tensor& output_gradient);

}  // namespace fullshard::ops
