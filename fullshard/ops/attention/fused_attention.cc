// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/attention/fused_attention.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <c10/util/Exception.h>

#include <optional>
#include <tuple>

namespace fullshard::ops {
namespace {

constexpr int64_t kWidestCudnn = 128, kWidestFlash = 256;

at::Tensor by_heads(const at::Tensor& tensor) { return tensor.transpose(1, 2); }

FusedAttention by_cudnn(const FusedAttentionInputs& inputs, bool wants_gradient) {
  auto made = at::_scaled_dot_product_cudnn_attention(
      by_heads(inputs.query), by_heads(inputs.key), by_heads(inputs.value), std::nullopt,
      wants_gradient, 0.0, inputs.causal, false, inputs.scale);
  return {FusedKernel::cudnn, by_heads(std::get<0>(made)).contiguous(), std::get<1>(made),
          std::get<6>(made), std::get<7>(made)};
}

FusedAttention by_flash(const FusedAttentionInputs& inputs) {
  auto made = at::_scaled_dot_product_flash_attention(by_heads(inputs.query), by_heads(inputs.key),
                                                      by_heads(inputs.value), 0.0, inputs.causal,
                                                      false, inputs.scale);
  return {FusedKernel::flash, by_heads(std::get<0>(made)).contiguous(), std::get<1>(made),
          std::get<6>(made), std::get<7>(made)};
}

// [batch, sequence, heads, D] as documents side by side.
at::Tensor joined(const at::Tensor& rows) { return rows.flatten(0, 1); }

// All documents of a batch in one launch: flash attention for rows of various lengths.
FusedAttention by_documents(const FusedAttentionInputs& inputs) {
  const auto& [starts, longest] = inputs.borders;
  auto made = at::_flash_attention_forward(joined(inputs.query), joined(inputs.key),
                                           joined(inputs.value), starts, starts, longest, longest,
                                           0.0, inputs.causal, false, inputs.scale);
  return {FusedKernel::flash_documents, std::get<0>(made).view(inputs.query.sizes()),
          std::get<1>(made), std::get<2>(made), std::get<3>(made)};
}

FusedAttentionGradients documents_backward(const FusedAttentionInputs& inputs,
                                           const FusedAttention& kept,
                                           const at::Tensor& output_gradient) {
  const auto& [starts, longest] = inputs.borders;
  auto made = at::_flash_attention_backward(
      joined(output_gradient), joined(inputs.query), joined(inputs.key), joined(inputs.value),
      joined(kept.output), kept.log_sums, starts, starts, longest, longest, 0.0, inputs.causal,
      kept.seed, kept.offset, inputs.scale);
  return {std::get<0>(made).contiguous().view(inputs.query.sizes()),
          std::get<1>(made).contiguous().view(inputs.key.sizes()),
          std::get<2>(made).contiguous().view(inputs.value.sizes())};
}

}  // namespace

bool can_fuse_attention(int64_t head_width) {
  return head_width > 0 && head_width % 8 == 0 && head_width <= kWidestFlash;
}

bool prefers_cudnn(const at::Tensor& query) {
  const auto& context = at::globalContext();
  const bool is_short = query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf;
  return query.is_cuda() && is_short && can_fuse_attention(query.size(3)) &&
         query.size(3) <= kWidestCudnn && query.size(1) > 1 && context.userEnabledCuDNNSDP() &&
         !context.deterministicAlgorithms();
}

at::Tensor cudnn_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           double dropout, bool causal, std::optional<double> scale) {
  try {
    return std::get<0>(at::_scaled_dot_product_cudnn_attention(
        query, key, value, std::nullopt, /*compute_log_sumexp=*/at::GradMode::is_enabled(), dropout,
        causal, /*return_debug_mask=*/false, scale));
  } catch (const c10::Error&) {
    return {};
  }
}

FusedAttention fused_attention(const FusedAttentionInputs& inputs, bool wants_gradient) {
  if (inputs.borders.starts.defined()) return by_documents(inputs);
  if (prefers_cudnn(inputs.query)) {
    try {
      return by_cudnn(inputs, wants_gradient);
    } catch (const c10::Error&) {
      // No plan for this shape, or an older cuDNN: flash attention serves more.
    }
  }
  return by_flash(inputs);
}

FusedAttentionGradients fused_attention_backward(const FusedAttentionInputs& inputs,
                                                 const FusedAttention& kept,
                                                 const at::Tensor& output_gradient) {
  if (kept.kernel == FusedKernel::flash_documents) {
    return documents_backward(inputs, kept, output_gradient);
  }
  const auto query = by_heads(inputs.query), key = by_heads(inputs.key);
  const auto value = by_heads(inputs.value), output = by_heads(kept.output);
  const auto gradient = by_heads(output_gradient);
  const int64_t num_queries = inputs.query.size(1), num_keys = inputs.key.size(1);
  const at::Tensor none;
  auto made = kept.kernel == FusedKernel::cudnn
                  ? at::_scaled_dot_product_cudnn_attention_backward(
                        gradient, query, key, value, output, kept.log_sums, kept.seed, kept.offset,
                        none, none, none, num_queries, num_keys, 0.0, inputs.causal, inputs.scale)
                  : at::_scaled_dot_product_flash_attention_backward(
                        gradient, query, key, value, output, kept.log_sums, none, none, num_queries,
                        num_keys, 0.0, inputs.causal, kept.seed, kept.offset, inputs.scale);
  return {by_heads(std::get<0>(made)).contiguous(), by_heads(std::get<1>(made)).contiguous(),
          by_heads(std::get<2>(made)).contiguous()};
}

}  // namespace fullshard::ops
