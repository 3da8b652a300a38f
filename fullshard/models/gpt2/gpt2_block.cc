// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/gpt2/gpt2_block.h"

#include <cmath>
#include <vector>

#include "fullshard/models/common/use_of_result.h"
#include "fullshard/ops/attention/self_attention.h"
#include "fullshard/ops/dropout.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/norm_projection.h"

namespace fullshard::models {
namespace {

double score_scale(const Gpt2Config& config, int64_t layer) {
  const auto head_width = static_cast<double>(config.width / config.num_heads);
  const double scale = config.scales_scores ? 1 / std::sqrt(head_width) : 1;
  return config.scales_scores_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

bool drops(double dropout, const torch::nn::Module& module) {
  return dropout > 0 && module.is_training();
}

}  // namespace

Gpt2AttentionImpl::Gpt2AttentionImpl(const Gpt2Config& config, int64_t layer)
    : num_heads_(config.num_heads),
      scale_(score_scale(config, layer)),
      attention_dropout_(config.attention_dropout),
      residual_dropout_(config.residual_dropout),
      c_attn_(register_module("c_attn", Linear(config.width, 3 * config.width))),
      c_proj_(register_module("c_proj", Linear(config.width, config.width))) {}

at::Tensor Gpt2AttentionImpl::forward(const at::Tensor& hidden, const NormTerms& norm,
                                      const at::Tensor& padding_mask,
                                      const ops::SharedPackedDocuments& documents) {
  const auto rows = ops::norm_projection(hidden, norm, std::vector{c_attn_->terms()});
  AttentionOptions options;
  options.causal = true;
  options.scale = scale_;
  options.dropout = is_training() ? attention_dropout_ : 0;
  options.padding_mask = padding_mask;
  options.documents = documents;
  const auto mixed =
      ops::self_attention(rows.projected, {num_heads_, num_heads_}, nullptr, options);
  if (drops(residual_dropout_, *this)) {
    return ops::dropped(c_proj_(mixed), residual_dropout_, rows.residual);
  }
  return linear(mixed, c_proj_->terms(), rows.residual);
}

Gpt2FeedForwardImpl::Gpt2FeedForwardImpl(const Gpt2Config& config)
    : activation_(config.activation),
      dropout_(config.residual_dropout),
      c_fc_(register_module("c_fc", Linear(config.width, config.inner_width))),
      c_proj_(register_module("c_proj", Linear(config.inner_width, config.width))) {}

at::Tensor Gpt2FeedForwardImpl::forward(const at::Tensor& hidden, const NormTerms& norm,
                                        ops::ResultUse use) {
  const auto rows = ops::norm_projection(hidden, norm, std::vector{c_fc_->terms()});
  if (drops(dropout_, *this)) {
    const auto branch =
        ops::activated_projection(rows.projected, activation_, c_proj_->terms(), {}, use);
    return ops::dropped(branch, dropout_, rows.residual);
  }
  return ops::activated_projection(rows.projected, activation_, c_proj_->terms(), rows.residual,
                                   use);
}

GPT2BlockImpl::GPT2BlockImpl(const Gpt2Config& config, int64_t layer)
    : ln_1_(register_module("ln_1", LayerNorm(config.width, config.norm_epsilon))),
      attn_(register_module("attn", Gpt2Attention(config, layer))),
      ln_2_(register_module("ln_2", LayerNorm(config.width, config.norm_epsilon))),
      mlp_(register_module("mlp", Gpt2FeedForward(config))) {}

at::Tensor GPT2BlockImpl::forward(const at::Tensor& hidden, const at::Tensor& padding_mask,
                                  CachedPass* cached, const ops::SharedPackedDocuments& documents) {
  if (cached != nullptr) return decode(hidden, *cached);
  return mlp_(attn_(hidden, ln_1_->terms(), padding_mask, documents), ln_2_->terms(),
              use_of_result(*this));
}

}  // namespace fullshard::models
