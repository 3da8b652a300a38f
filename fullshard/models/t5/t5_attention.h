// SPDX-License-Identifier: Apache-2.0
// T5's attention: no scaling, no biases in the products, positions as a bias of the scores.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "fullshard/models/common/key_value_cache.h"
#include "fullshard/models/common/unpadded.h"
#include "fullshard/models/t5/relative_position.h"
#include "fullshard/models/t5/t5_config.h"
#include "fullshard/ops/attention/attention.h"
#include "fullshard/ops/embedding.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard::models {

enum class T5Part { encoder, decoder };

// Hidden states of a source or a target.
struct T5Sequence {
  at::Tensor hidden = {};
  at::Tensor mask = {};        // [batch, sequence], or undefined
  SharedUnpadded layout = {};  // hidden has no padding
};

// What one attention looks at.
struct T5AttentionInput {
  T5Sequence own;
  T5Sequence source = {};  // keys and values come from it; undefined: from its own
  // Of its own: [batch or 1, heads, queries, keys], which hides what the mask does.
  at::Tensor position_bias = {};
};

// A product without a bias: T5 has no others.
Linear t5_linear(int64_t input_width, int64_t output_width);

class T5AttentionImpl : public torch::nn::Module {
 public:
  // `has_table`: it owns the relative positions of its stack.
  T5AttentionImpl(const T5Config& config, bool is_causal, bool has_table);
  // hidden + dropout(attention(norm(hidden))).
  at::Tensor forward(const T5AttentionInput& input, const NormTerms& norm);

  // Of the owner of the table.
  at::Tensor position_bias(int64_t length) const;
  at::Tensor position_bias(const ops::CachePlaces& places) const;

  // What is added to hidden: over the target so far, or over the source.
  at::Tensor decode(const at::Tensor& hidden, const NormTerms& norm, CachedPass& pass);
  at::Tensor decode_cross(const at::Tensor& hidden, const NormTerms& norm, CachedPass& pass);

 private:
  at::Tensor heads_of(const at::Tensor& tensor) const;
  at::Tensor cross_attention(const at::Tensor& query, const T5Sequence& source,
                             const AttentionOptions& options);

  Linear query_, key_, value_, output_;
  Embedding table_ = nullptr;
  RelativePositions positions_;
  int64_t num_heads_;
  bool is_causal_;
  double dropout_;
};
TORCH_MODULE(T5Attention);

// Attention and the norm before it.
class T5AttentionLayerImpl : public torch::nn::Module {
 public:
  // `name` is the attention's in files: "SelfAttention" or "EncDecAttention".
  T5AttentionLayerImpl(const T5Config& config, const char* name, bool is_causal, bool has_table);
  at::Tensor forward(const T5AttentionInput& input) { return attention_(input, norm_->terms()); }

  at::Tensor position_bias(int64_t length) const { return attention_->position_bias(length); }
  at::Tensor position_bias(const ops::CachePlaces& places) const {
    return attention_->position_bias(places);
  }

  at::Tensor decode(const at::Tensor& hidden, CachedPass& pass);
  at::Tensor decode_cross(const at::Tensor& hidden, CachedPass& pass);

 private:
  T5Attention attention_;
  RmsNorm norm_;
};
TORCH_MODULE(T5AttentionLayer);

}  // namespace fullshard::models
