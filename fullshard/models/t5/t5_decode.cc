// SPDX-License-Identifier: Apache-2.0
// T5's decoder over a cache: of the target so far, and of the source, whose keys and values are
// made once.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "fullshard/base/error.h"
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/common/key_value_cache.h"
#include "fullshard/models/t5/t5_model.h"
#include "fullshard/ops/attention/self_attention.h"
#include "fullshard/ops/decoding/cached_attention.h"
#include "fullshard/ops/decoding/few_rows.h"

namespace fullshard::models {
namespace {

// Sources are padded behind, so what a mask shows is their lengths.
std::vector<int64_t> source_lengths(const at::Tensor& input_ids, const at::Tensor& mask) {
  if (!mask.defined()) {
    return std::vector<int64_t>(static_cast<size_t>(input_ids.size(0)), input_ids.size(1));
  }
  const auto sums = mask.ne(0).sum(1).cpu();
  const auto* begin = sums.const_data_ptr<int64_t>();
  return {begin, begin + sums.numel()};
}

}  // namespace

at::Tensor T5AttentionImpl::position_bias(const ops::CachePlaces& places) const {
  return relative_position_bias(table_->weight, places.starts.front(), places.count,
                                places.num_columns(), positions_);
}

at::Tensor T5AttentionImpl::decode(const at::Tensor& hidden, const NormTerms& norm,
                                   CachedPass& pass) {
  const auto rows = ops::few_rows_norm_projection(
      hidden, norm, {query_->terms(), key_->terms(), value_->terms()});
  const auto [query, key, value] = ops::split_heads(rows, {num_heads_, num_heads_});
  const CachedLayer layer = pass.cache->store(pass.layer, key, value, pass.places);
  const auto mixed = ops::cached_attention(query, layer.keys, layer.values, pass.places,
                                           {.scale = 1.0, .bias = pass.position_bias});
  return ops::few_rows_linear(mixed, output_->terms(), hidden);
}

at::Tensor T5AttentionImpl::decode_cross(const at::Tensor& hidden, const NormTerms& norm,
                                         CachedPass& pass) {
  if (pass.encoded.defined()) {
    pass.cache->set_cross(pass.layer, heads_of(key_(pass.encoded)), heads_of(value_(pass.encoded)));
  }
  const auto query = ops::few_rows_linear(apply_norm(hidden, norm), query_->terms());
  const CachedLayer layer = pass.cache->cross(pass.layer);
  const auto mixed = ops::complete_attention(heads_of(query), layer.keys, layer.values,
                                             pass.cache->source_lengths(), {.scale = 1.0});
  return ops::few_rows_linear(mixed, output_->terms(), hidden);
}

at::Tensor T5AttentionLayerImpl::decode(const at::Tensor& hidden, CachedPass& pass) {
  return attention_->decode(hidden, norm_->terms(), pass);
}

at::Tensor T5AttentionLayerImpl::decode_cross(const at::Tensor& hidden, CachedPass& pass) {
  return attention_->decode_cross(hidden, norm_->terms(), pass);
}

at::Tensor T5FeedForwardImpl::decode(const at::Tensor& hidden) {
  std::vector<LinearTerms> inner = {gate_->terms()};
  if (!up_.is_empty()) inner.push_back(up_->terms());
  return ops::few_rows_feed_forward(
      hidden, norm_->terms(), {.inner = inner, .activation = activation_, .outer = down_->terms()});
}

at::Tensor T5BlockImpl::decode(at::Tensor hidden, CachedPass& pass) {
  if (pass.layer == 0) pass.position_bias = self_attention_->position_bias(pass.places);
  hidden = within_half_range(self_attention_->decode(hidden, pass));
  hidden = within_half_range(cross_attention_->decode_cross(hidden, pass));
  return within_half_range(feed_forward_->decode(hidden));
}

at::Tensor T5Stack::decode(const at::Tensor& embedded, CachedPass& pass) {
  at::Tensor hidden = embedded;
  for (pass.layer = 0; pass.layer < blocks_.size(); ++pass.layer) {
    hidden = blocks_[pass.layer](T5Sequence{hidden}, at::Tensor(), T5Sequence(), &pass).hidden;
  }
  return norm_(wanted_rows(hidden, pass));
}

void T5ForConditionalGenerationImpl::encode(const ModelInputs& inputs, CachedPass& pass) {
  const auto mask = padding_mask(inputs.attention_mask);
  if (pass.skips_encoder) {
    pass.encoded = at::zeros({inputs.input_ids.size(0), inputs.input_ids.size(1), config_.width},
                             shared_.weight().options());
  } else {
    const auto encoded =
        encoder_.forward({shared_(inputs.input_ids), mask}, {}, /*is_training=*/false);
    if (pass.drops_source) return;
    pass.encoded = encoded;
  }
  pass.cache->set_source_lengths(source_lengths(inputs.input_ids, mask));
}

ModelOutputs T5ForConditionalGenerationImpl::decode(const ModelInputs& inputs) {
  CachedPass& pass = *inputs.cached;
  const auto& targets = inputs.decoder_input_ids;
  check_tokens("decoder_input_ids", targets, config_.vocabulary, 0);
  if (inputs.input_ids.defined()) {
    check_tokens("input_ids", inputs.input_ids, config_.vocabulary, 0);
    encode(inputs, pass);
  }
  pass.places = pass.cache->next_places(targets.size(1), targets.device());
  const auto hidden = decoder_.decode(shared_(targets), pass);
  pass.cache->advance(targets.size(1));
  const double scale =
      config_.scales_head ? 1 / std::sqrt(static_cast<double>(config_.width)) : 1.0;
  if (!head_.is_empty()) return decoded_outputs(hidden, head_, scale);
  return decoded_outputs(hidden, Head{.weight = shared_.weight(), .scale = scale});
}

}  // namespace fullshard::models
