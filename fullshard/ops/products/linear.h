// SPDX-License-Identifier: Apache-2.0
// A linear layer whose weight gradient goes straight to where it is needed.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "fullshard/ops/products/linear_terms.h"
#include "fullshard/ops/products/low_rank.h"
#include "fullshard/ops/products/result_use.h"

namespace fullshard {

// The values of at::linear, to the bit on the CPU, and its gradients. In backward the product that
// is the weight's gradient is written into the weight's gradient sink when it has one: in a sharded
// model that is its slot in the buffer that is reduced, which saves the temporary tensor and its
// copy. The product is of matrices: on a GPU it adds in fp32 into a wide sink of 16-bit weights.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias = {});

// residual + linear(input, weight, bias), which on a GPU the product itself adds. Where only the
// graph is wanted, a trained layer of the CPU leaves its product out.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual, ops::ResultUse use = ops::ResultUse::values);

// One of the two matrices of an adapter: the parameter `weight`, as in PEFT's files.
class LowRankFactorImpl : public torch::nn::Module {
 public:
  // Zeros.
  LowRankFactorImpl(int64_t outputs, int64_t inputs, const at::TensorOptions& options);

  at::Tensor weight;
};
TORCH_MODULE(LowRankFactor);

struct LowRankOptions {
  int64_t rank = 8;
  double scale = 1;    // of the part as a whole: LoRA's alpha / rank
  double dropout = 0;  // of the rows on their way to it, while the module trains
};

// torch::nn::Linear through it: the same parameters, names, options and initialisation. It can be
// given a low-rank adapter and a weight in 8 bits: both before the module is sharded, from one
// thread.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& input) { return linear(input, terms()); }

  // What a model hands to operators that span several layers.
  LinearTerms terms() const;

  // Adds the parameters lora_A.weight [rank, inputs], drawn as PEFT draws it, and lora_B.weight
  // [outputs, rank] of zeros: until they are trained nothing changes. They are where the weight is,
  // in its dtype; deferred where it is. Does not freeze the weight.
  void adapt(const LowRankOptions& part);
  bool is_adapted() const { return !lora_a_.is_empty(); }
  const LowRankOptions& adapter() const { return adapter_; }

  // A head: what makes the logits reads its weight and bias, not its terms. It takes no adapter.
  void mark_as_head() { is_head_ = true; }
  bool is_head() const { return is_head_; }

  // Freezes the weight and keeps it in int8, with the parameter weight_scale for its rows. That is
  // of int32, the bits of fp32: no option about floating parameters changes it. A deferred weight
  // stays deferred.
  void quantise();
  bool is_quantised() const { return weight_scale_.defined(); }

 private:
  LowRankOptions adapter_;
  LowRankFactor lora_a_ = nullptr;
  LowRankFactor lora_b_ = nullptr;
  at::Tensor weight_scale_;
  bool is_head_ = false;
};
TORCH_MODULE(Linear);

}  // namespace fullshard
