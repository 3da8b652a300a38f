// SPDX-License-Identifier: Apache-2.0
// A linear layer whose weight gradient goes straight to where it is needed.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace fullshard {

// The values of at::linear, to the bit on the CPU, and its gradients. In backward the product that
// is the weight's gradient is written into the weight's gradient sink when it has one: in a sharded
// model that is its slot in the buffer that is reduced, which saves the temporary tensor and its
// copy. The product is of matrices: on a GPU it adds in fp32 into a wide sink of 16-bit weights.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias = {});

// residual + linear(input, weight, bias), which on a GPU the product itself adds.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual);

// torch::nn::Linear through it: the same parameters, names, options and initialisation.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& input) { return linear(input, weight, bias); }
};
TORCH_MODULE(Linear);

}  // namespace fullshard
