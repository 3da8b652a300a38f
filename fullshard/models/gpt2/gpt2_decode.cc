// SPDX-License-Identifier: Apache-2.0
// GPT-2 over a cache of keys and values.
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/common/key_value_cache.h"
#include "fullshard/models/gpt2/gpt2_model.h"
#include "fullshard/ops/attention/self_attention.h"
#include "fullshard/ops/decoding/cached_attention.h"
#include "fullshard/ops/decoding/few_rows.h"

namespace fullshard::models {

at::Tensor Gpt2AttentionImpl::decode(const at::Tensor& hidden, const NormTerms& norm,
                                     CachedPass& pass) {
  const auto rows = ops::few_rows_norm_projection(hidden, norm, std::vector{c_attn_->terms()});
  const ops::SelfAttentionHeads heads{num_heads_, num_heads_};
  const CachedLayer known = pass.cache->layer(pass.layer, pass.places);
  const auto at_once = ops::step_attention(rows, heads, nullptr, known.keys, known.values,
                                           pass.places, {.scale = scale_});
  if (at_once.defined()) {
    ++pass.num_on_device;
    pass.cache->stored(pass.layer, pass.places);
    return ops::few_rows_linear(at_once, c_proj_->terms(), hidden);
  }
  const auto [query, key, value] = ops::split_heads(rows, heads);
  const CachedLayer layer = pass.cache->store(pass.layer, key, value, pass.places);
  const auto mixed =
      ops::cached_attention(query, layer.keys, layer.values, pass.places, {.scale = scale_});
  return ops::few_rows_linear(mixed, c_proj_->terms(), hidden);
}

at::Tensor Gpt2FeedForwardImpl::decode(const at::Tensor& hidden, const NormTerms& norm) {
  return ops::few_rows_feed_forward(
      hidden, norm,
      {.inner = {c_fc_->terms()}, .activation = activation_, .outer = c_proj_->terms()});
}

at::Tensor GPT2BlockImpl::decode(const at::Tensor& hidden, CachedPass& pass) {
  return mlp_->decode(attn_->decode(hidden, ln_1_->terms(), pass), ln_2_->terms());
}

at::Tensor Gpt2StackImpl::decode(const at::Tensor& input_ids, CachedPass& pass) {
  auto hidden = wte_(input_ids) + wpe_(pass.places.positions);
  for (pass.layer = 0; pass.layer < blocks_.size(); ++pass.layer) {
    hidden = blocks_[pass.layer](hidden, at::Tensor(), &pass);
  }
  return ln_f_(wanted_rows(hidden, pass));
}

ModelOutputs GPT2LMHeadModelImpl::decode(const ModelInputs& inputs) {
  CachedPass& pass = *inputs.cached;
  check_tokens("input_ids", inputs.input_ids, config_.vocabulary, 0);
  pass.places =
      pass.cache->next_places(inputs.input_ids.size(1), inputs.input_ids.device(), pass.positions);
  check(pass.places.num_columns() <= config_.positions,
        "input_ids: a sequence of {} tokens, but the model has {} positions; cut the sequences",
        pass.places.num_columns(), config_.positions);
  const auto hidden = transformer_->decode(inputs.input_ids, pass);
  pass.cache->advance(inputs.input_ids.size(1));
  if (!config_.tied) return decoded_outputs(hidden, lm_head_);
  return decoded_outputs(hidden, Head{.weight = transformer_->token_table()});
}

}  // namespace fullshard::models
