// SPDX-License-Identifier: Apache-2.0
// The Llama family over a cache of keys and values.
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/common/key_value_cache.h"
#include "fullshard/models/llama/llama_model.h"
#include "fullshard/ops/attention/self_attention.h"
#include "fullshard/ops/decoding/cached_attention.h"
#include "fullshard/ops/decoding/few_rows.h"

namespace fullshard::models {

at::Tensor LlamaAttentionImpl::decode(const at::Tensor& hidden, const NormTerms& norm,
                                      CachedPass& pass) {
  const auto rows = ops::few_rows_norm_projection(
      hidden, norm, {q_proj_->terms(), k_proj_->terms(), v_proj_->terms()});
  const ops::SelfAttentionHeads heads{num_heads_, num_kv_heads_};
  const CachedLayer known = pass.cache->layer(pass.layer, pass.places);
  const auto at_once = ops::step_attention(rows, heads, pass.rotary.get(), known.keys, known.values,
                                           pass.places, {.window = window_});
  if (at_once.defined()) {
    ++pass.num_on_device;
    pass.cache->stored(pass.layer, pass.places);
    return ops::few_rows_linear(at_once, o_proj_->terms(), hidden);
  }
  const auto [query, key, value] = ops::split_heads(rows, heads);
  const auto turned = apply_rotary(query, *pass.rotary, pass.places.positions);
  const CachedLayer layer = pass.cache->store(
      pass.layer, apply_rotary(key, *pass.rotary, pass.places.positions), value, pass.places);
  const auto mixed =
      ops::cached_attention(turned, layer.keys, layer.values, pass.places, {.window = window_});
  return ops::few_rows_linear(mixed, o_proj_->terms(), hidden);
}

at::Tensor LlamaFeedForwardImpl::decode(const at::Tensor& hidden, const NormTerms& norm) {
  return ops::few_rows_feed_forward(hidden, norm,
                                    {.inner = {gate_proj_->terms(), up_proj_->terms()},
                                     .activation = activation_,
                                     .outer = down_proj_->terms()});
}

at::Tensor LlamaLayer::decode(const at::Tensor& hidden, CachedPass& pass) {
  const auto attended = self_attn_->decode(hidden, input_layernorm_->terms(), pass);
  return mlp_->decode(attended, post_attention_layernorm_->terms());
}

at::Tensor LlamaStackImpl::decode(const at::Tensor& input_ids, CachedPass& pass) {
  auto hidden = embed_tokens_(input_ids);
  // Of all positions that the cache may come to, so that it is made once.
  pass.rotary = rope_.table(pass.cache->capacity(), hidden.device());
  for (pass.layer = 0; pass.layer < layers_.size(); ++pass.layer) {
    hidden = layers_[pass.layer]->forward(hidden, {}, {}, &pass);
  }
  return norm_(wanted_rows(hidden, pass));
}

ModelOutputs LlamaLanguageModel::decode(const ModelInputs& inputs) {
  CachedPass& pass = *inputs.cached;
  check_tokens("input_ids", inputs.input_ids, config_.vocabulary, 0);
  pass.places =
      pass.cache->next_places(inputs.input_ids.size(1), inputs.input_ids.device(), pass.positions);
  const auto hidden = model_->decode(inputs.input_ids, pass);
  pass.cache->advance(inputs.input_ids.size(1));
  if (!config_.tied) return decoded_outputs(hidden, lm_head_);
  return decoded_outputs(hidden, Head{.weight = model_->token_table()});
}

}  // namespace fullshard::models
