// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/attention/self_attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "fullshard/base/error.h"
#include "fullshard/ops/absent_tensor.h"
#include "fullshard/ops/attention/fused_attention.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/last_use.h"

namespace fullshard::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

QueryKeyValue split_rows(const at::Tensor& packed, const SelfAttentionHeads& heads) {
  const int64_t all = heads.num_heads + 2 * heads.num_kv_heads;
  if (heads.num_heads == heads.num_kv_heads) {
    const auto parts = packed.unflatten(-1, {3, heads.num_heads, -1}).unbind(2);
    return {parts[0], parts[1], parts[2]};
  }
  const auto parts =
      packed.unflatten(-1, {all, -1})
          .split_with_sizes({heads.num_heads, heads.num_kv_heads, heads.num_kv_heads}, 2);
  return {parts[0], parts[1], parts[2]};
}

at::Tensor composed_attention(const Projected& input, const SelfAttentionHeads& heads,
                              const RotaryTable* rotary, const AttentionOptions& options,
                              const at::Tensor& positions) {
  auto [query, key, value] = split_heads(input, heads);
  if (rotary != nullptr) {
    query = apply_rotary(query, *rotary, positions);
    key = apply_rotary(key, *rotary, positions);
  }
  return attention(query, key, value, options).flatten(2);
}

// Cosines, sines, positions and starts of documents are empty where there are none.
struct SelfAttentionFunction : torch::autograd::Function<SelfAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& packed,
                            const at::Tensor& given_cosines, const at::Tensor& given_sines,
                            const at::Tensor& given_positions, const at::Tensor& given_starts,
                            int64_t longest, const SelfAttentionHeads& heads, bool causal,
                            double scale, bool wants_gradient) {
    const auto cosines = undefined_if_empty(given_cosines);
    const auto sines = undefined_if_empty(given_sines);
    const auto positions = undefined_if_empty(given_positions);
    const auto starts = undefined_if_empty(given_starts);
    if (cosines.defined()) {
      device_rotate(packed, heads.num_heads + heads.num_kv_heads, {cosines, sines}, positions, 1);
      packed.unsafeGetTensorImpl()->bump_version();
    }
    const auto [query, key, value] = split_rows(packed, heads);
    const auto made =
        fused_attention({query, key, value, causal, scale, {starts, longest}}, wants_gradient);
    context->save_for_backward({packed, made.output, made.log_sums, made.seed, made.offset, cosines,
                                sines, positions, starts});
    context->saved_data["longest"] = longest;
    context->saved_data["num_heads"] = heads.num_heads;
    context->saved_data["num_kv_heads"] = heads.num_kv_heads;
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    context->saved_data["kernel"] = static_cast<int64_t>(made.kernel);
    return made.output.flatten(2).detach();  // no view in autograd's eyes
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative("self_attention");
    const auto saved = context->get_saved_variables();
    const auto& packed = saved[0];
    const bool may_overwrite = is_last_use(packed);
    const SelfAttentionHeads heads{context->saved_data["num_heads"].toInt(),
                                   context->saved_data["num_kv_heads"].toInt()};
    const auto [query, key, value] = split_rows(packed, heads);
    const FusedAttention kept{FusedKernel(context->saved_data["kernel"].toInt()), saved[1],
                              saved[2], saved[3], saved[4]};
    const auto made =
        fused_attention_backward({query,
                                  key,
                                  value,
                                  context->saved_data["causal"].toBool(),
                                  context->saved_data["scale"].toDouble(),
                                  {saved[8], context->saved_data["longest"].toInt()}},
                                 kept, gradients[0].contiguous().view(saved[1].sizes()));
    const RotaryTable table{saved[5], saved[6]};
    const auto rows = may_overwrite ? packed.detach() : at::empty(packed.sizes(), packed.options());
    device_pack_heads(rows, made.query, made.key, made.value,
                      table.cos.defined() ? &table : nullptr, saved[7]);
    variable_list results(10);
    results[0] = rows;
    return results;
  }
};

bool is_plain(const AttentionOptions& options, int64_t sequence) {
  const bool has_window = options.window > 0 && options.window < sequence;
  return !has_window && options.dropout == 0 && !options.padding_mask.defined() &&
         !options.bias.defined();
}

bool has_plain_table(const RotaryTable* rotary, int64_t sequence, int64_t half,
                     const at::Tensor& positions) {
  if (rotary == nullptr) return true;
  return has_cuda_kernel({rotary->cos, rotary->sin}) && rotary->cos.scalar_type() == at::kFloat &&
         rotary->cos.is_contiguous() && rotary->sin.is_contiguous() &&
         rotary->cos.size(1) == half && (positions.defined() || rotary->cos.size(0) >= sequence);
}

bool attends_on_device(const Projected& input, const SelfAttentionHeads& heads,
                       const RotaryTable* rotary, const AttentionOptions& options,
                       const at::Tensor& positions) {
  const auto& packed = input.packed;
  if (!packed.defined() || packed.dim() != 3 || packed.numel() == 0) return false;
  if (!has_cuda_kernel({packed}) || packed.scalar_type() != at::kBFloat16) return false;
  if (!packed.is_contiguous() || !is_plain(options, packed.size(1))) return false;
  const int64_t width = packed.size(2) / (heads.num_heads + 2 * heads.num_kv_heads);
  return can_fuse_attention(width) && has_plain_table(rotary, packed.size(1), width / 2, positions);
}

// The kernel trusts what it is told: that there are as many tokens is checked here.
DocumentBorders borders_of(const PackedDocuments* documents, const at::Tensor& packed) {
  if (documents == nullptr) return {};
  check_fills(*documents, packed.size(0), packed.size(1), packed.size(1));
  if (documents->are_rows()) return {};
  return {documents->starts, documents->longest};
}

void check_heads(const Projected& input, const SelfAttentionHeads& heads) {
  int64_t width = input.packed.defined() ? input.packed.size(-1) : 0;
  for (const auto& part : input.parts) width += part.size(-1);
  const int64_t all = heads.num_heads + 2 * heads.num_kv_heads;
  check(heads.num_heads > 0 && heads.num_kv_heads > 0 && width % all == 0,
        "self_attention: rows of {} elements for {} heads and twice {} key heads; expected a "
        "multiple of their number",
        width, heads.num_heads, heads.num_kv_heads);
}

}  // namespace

QueryKeyValue split_heads(const Projected& input, const SelfAttentionHeads& heads) {
  if (input.packed.defined() || input.parts.size() == 1) return split_rows(input.first(), heads);
  return {input.parts[0].unflatten(-1, {heads.num_heads, -1}),
          input.parts[1].unflatten(-1, {heads.num_kv_heads, -1}),
          input.parts[2].unflatten(-1, {heads.num_kv_heads, -1})};
}

at::Tensor self_attention(const Projected& input, const SelfAttentionHeads& heads,
                          const RotaryTable* rotary, const AttentionOptions& options,
                          const at::Tensor& given_positions) {
  check_heads(input, heads);
  const bool restarts = options.documents != nullptr && !given_positions.defined();
  const at::Tensor& positions = restarts ? options.documents->positions : given_positions;
  if (!attends_on_device(input, heads, rotary, options, positions)) {
    return composed_attention(input, heads, rotary, options, positions);
  }
  auto packed = input.packed;
  check(
      !positions.defined() || positions.device() == packed.device(),
      "self_attention: positions lie on {}, the rows on {}; move them there first, or make packed "
      "documents for that device",
      positions.defined() ? positions.device().str() : "", packed.device().str());
  const bool wants_gradient = at::GradMode::is_enabled() && packed.requires_grad();
  if (rotary != nullptr && packed.is_leaf() && packed.requires_grad()) packed = packed.clone();
  const auto rows =
      positions.defined()
          ? positions.expand({packed.size(0), packed.size(1)}).to(at::kLong).contiguous()
          : at::Tensor();
  const int64_t all = heads.num_heads + 2 * heads.num_kv_heads;
  const double width = static_cast<double>(packed.size(2) / all);
  const RotaryTable table = rotary != nullptr ? *rotary : RotaryTable{};
  const auto [starts, longest] = borders_of(options.documents.get(), packed);
  return SelfAttentionFunction::apply(
      packed, empty_if_absent(table.cos, packed), empty_if_absent(table.sin, packed),
      empty_if_absent(rows, packed), empty_if_absent(starts, packed), longest, heads,
      options.causal, options.scale.value_or(1 / std::sqrt(width)), wants_gradient);
}

}  // namespace fullshard::ops
