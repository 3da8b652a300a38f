// SPDX-License-Identifier: Apache-2.0
// An embedding whose weight gradient touches only the rows that were looked up.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>

namespace fullshard {

// The values of at::embedding, to the bit, and its gradients. In backward the rows' gradients are
// added into the weight's gradient sink when it has one (see linear.h): the dense tensor of the
// table's size, nearly all of it zeros, is never made. Rows of `padding_index` get no gradient.
at::Tensor embedding(const at::Tensor& indices, const at::Tensor& weight,
                     int64_t padding_index = -1);

// torch::nn::Embedding through it: the same parameters, names, options and initialisation.
// max_norm, scale_grad_by_freq and sparse are torch's own business: with one of them its operator
// runs.
class EmbeddingImpl : public torch::nn::EmbeddingImpl {
 public:
  using torch::nn::EmbeddingImpl::EmbeddingImpl;
  at::Tensor forward(const at::Tensor& indices);
};
TORCH_MODULE(Embedding);

}  // namespace fullshard
