// SPDX-License-Identifier: Apache-2.0
// One block of T5's encoder or decoder. Each part normalises its input first and adds its output.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "fullshard/models/t5/t5_attention.h"
#include "fullshard/models/t5/t5_config.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard::models {

class T5FeedForwardImpl : public torch::nn::Module {
 public:
  explicit T5FeedForwardImpl(const T5Config& config);
  at::Tensor forward(const at::Tensor& hidden);
  at::Tensor decode(const at::Tensor& hidden);

 private:
  RmsNorm norm_ = nullptr;
  Linear gate_ = nullptr;
  Linear up_ = nullptr;  // none without a gate
  Linear down_ = nullptr;
  Activation activation_;
  double dropout_;
};
TORCH_MODULE(T5FeedForward);

// T5's sums outgrow fp16: the original pulls infinities back into its range, and so do we.
at::Tensor within_half_range(const at::Tensor& hidden);

struct T5BlockOutput {
  at::Tensor hidden{};
  // Of the first block only: its table makes the bias for all blocks of the stack. It passes from
  // block to block as a tensor, since only the first block's forward has the table at hand.
  at::Tensor position_bias{};
};

class T5BlockImpl : public Unit {
 public:
  T5BlockImpl(const T5Config& config, T5Part part, bool is_first);

  // `position_bias` is undefined for the first block. A decoder's block looks at `encoded`. With
  // `cached` the tokens follow those of its cache, and nothing but hidden is looked at.
  T5BlockOutput forward(T5Sequence own, at::Tensor position_bias, T5Sequence encoded = {},
                        CachedPass* cached = nullptr);

 private:
  at::Tensor decode(at::Tensor hidden, CachedPass& pass);

  T5AttentionLayer self_attention_ = nullptr;
  T5AttentionLayer cross_attention_ = nullptr;  // none in the encoder
  T5FeedForward feed_forward_ = nullptr;
};
FULLSHARD_UNIT(T5Block);

}  // namespace fullshard::models
