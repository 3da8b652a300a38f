// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/attention/attention.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/ops/attention/fused_attention.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard {
namespace {

void check_attention_shapes(const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) {
  check(query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
        "attention: query, key and value have {}, {} and {} dimensions; expected [batch, sequence, "
        "heads, D] of each",
        query.dim(), key.dim(), value.dim());
  check(key.sizes() == value.sizes(),
        "attention: key has {} keys of {} heads, value has {} of {}; they must agree", key.size(1),
        key.size(2), value.size(1), value.size(2));
  check(query.size(0) == key.size(0) && query.size(3) == key.size(3),
        "attention: query has batch {} and width {}, key has {} and {}; they must agree",
        query.size(0), query.size(3), key.size(0), key.size(3));
  check(key.size(2) > 0 && query.size(2) % key.size(2) == 0,
        "attention: {} query heads cannot share {} key heads evenly; give a divisor", query.size(2),
        key.size(2));
}

void check_attention_options(const AttentionOptions& options, const at::Tensor& query,
                             const at::Tensor& key) {
  check(options.window == 0 || options.causal,
        "attention: a window of {} keys without causal; set causal, or window to 0",
        options.window);
  check(options.window >= 0, "attention: the window is {}; expected 0 (all) or more",
        options.window);
  const auto& mask = options.padding_mask;
  check(!mask.defined() ||
            (mask.dim() == 2 && mask.size(0) == query.size(0) && mask.size(1) == key.size(1)),
        "attention: the padding mask has {} dimensions and {} elements; expected [{}, {}], batch "
        "and keys",
        mask.defined() ? mask.dim() : 0, mask.defined() ? mask.numel() : 0, query.size(0),
        key.size(1));
}

// Whether the kernels' own causal rule, query s sees keys 0 to s, is the one asked for.
bool is_plainly_causal(const AttentionOptions& options, int64_t num_queries, int64_t num_keys) {
  const bool is_narrow = options.window > 0 && options.window < num_keys;
  return options.causal && num_queries == num_keys && !is_narrow;
}

// Which keys a query sees by its place: [queries, keys] of bool.
at::Tensor visible_by_place(const AttentionOptions& options, const at::Tensor& query,
                            const at::Tensor& key) {
  const int64_t num_queries = query.size(1), num_keys = key.size(1);
  const auto integers = query.options().dtype(at::kLong);
  const auto keys = at::arange(num_keys, integers).unsqueeze(0);
  const auto lasts = (at::arange(num_queries, integers) + (num_keys - num_queries)).unsqueeze(1);
  auto visible = keys.le(lasts);
  // Not logical_and, which plans cannot follow: it has no kernel for shapes alone.
  if (options.window > 0) visible = visible & keys.gt(lasts - options.window);
  return visible;
}

bool hides_nothing(const at::Tensor& padding_mask) {
  // Asking an accelerator would wait for it.
  return !padding_mask.defined() ||
         (padding_mask.is_cpu() && padding_mask.ne(0).all().item<bool>());
}

double lowest(at::ScalarType dtype) {
  double value = 0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "attention", [&] {
    value = static_cast<double>(std::numeric_limits<scalar_t>::lowest());
  });
  return value;
}

// Hidden keys get the lowest finite number and not minus infinity, so that a query that sees none
// averages over all instead of dividing 0 by 0.
at::Tensor with_lowest(const at::Tensor& visible, const at::Tensor& bias) {
  // Kernels of the GPU multiply with log2(e) before the exponential: the lowest would overflow.
  const double hidden = lowest(bias.scalar_type()) * (bias.is_cuda() ? 0.5 : 1.0);
  return at::where(visible, bias, at::zeros({}, bias.options()).fill_(hidden));
}

at::Tensor for_scores(const at::Tensor& padding_mask) {
  return padding_mask.ne(0).unsqueeze(1).unsqueeze(1);
}

// What is added to the scores, with four dimensions; undefined: nothing. `is_causal`: the kernel
// applies the causal rule itself.
at::Tensor score_mask(const AttentionOptions& options, const at::Tensor& query,
                      const at::Tensor& key, bool is_causal) {
  at::Tensor bias = options.bias, visible;
  if (bias.defined()) {
    while (bias.dim() < 4) bias = bias.unsqueeze(0);
    bias = bias.to(query.scalar_type());
  }
  const bool sees_all =
      query.size(1) == 1 && (options.window == 0 || options.window >= key.size(1));
  if (options.causal && !is_causal && !sees_all) visible = visible_by_place(options, query, key);
  if (!hides_nothing(options.padding_mask)) {
    const auto real = for_scores(options.padding_mask);
    visible = visible.defined() ? visible & real : real;
  }
  if (!visible.defined()) return bias;
  while (visible.dim() < 4) visible = visible.unsqueeze(0);
  return with_lowest(visible, bias.defined() ? bias : at::zeros({}, query.options()));
}

// torch's flash kernel of the CPU, called by its own name because it takes the causal rule together
// with a mask: linear memory, any strides but the last, no dropout, no gradient of the bias. Shared
// key heads are left to torch's general function, which knows whether its kernels serve them.
bool can_use_flash(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const AttentionOptions& options) {
  const bool bias_needs_gradient =
      options.bias.defined() && options.bias.requires_grad() && at::GradMode::is_enabled();
  const bool is_dense = query.stride(-1) == 1 && key.stride(-1) == 1 && value.stride(-1) == 1;
  return query.is_cpu() && is_dense && query.size(2) == key.size(2) && options.dropout == 0 &&
         !bias_needs_gradient;
}

constexpr int64_t kTogether = 8;  // elements that the GPU's kernel wants of widths and rows

// libtorch's kernel of the GPU for scores that something is added to: linear memory, a gradient of
// the bias. It is named because the general function composes attention from products where a bias
// needs a gradient, and, in a plan, because that function asks a driver which kernels there are.
bool can_use_efficient(const at::Tensor& query, const at::Tensor& mask) {
  if (!query.is_cuda() || !(mask.defined() || tensor::is_pretended())) return false;
  const bool has_dtype = query.scalar_type() == at::kFloat || query.scalar_type() == at::kHalf ||
                         query.scalar_type() == at::kBFloat16;
  return has_dtype && query.size(3) % kTogether == 0;
}

// Heads as libtorch's kernels read them: dense in their last dimension.
at::Tensor dense_heads(const at::Tensor& heads) {
  return heads.stride(-1) == 1 ? heads : heads.contiguous();
}

// Its rows are dense and begin at multiples of that; one number for all keys becomes one for each.
at::Tensor aligned_mask(const at::Tensor& mask, int64_t num_keys) {
  const int64_t missing = (kTogether - num_keys % kTogether) % kTogether;
  const auto whole = mask.expand({mask.size(0), mask.size(1), mask.size(2), num_keys});
  if (missing == 0) return whole.contiguous();
  // Of three dimensions: padding four would keep an order of memory that is meant for images.
  const auto rows = whole.reshape({-1, mask.size(2), num_keys});
  return at::constant_pad_nd(rows, {0, missing})
      .unflatten(0, {mask.size(0), mask.size(1)})
      .narrow(3, 0, num_keys);
}

at::Tensor efficient_attention(const at::Tensor& queries, const at::Tensor& keys,
                               const at::Tensor& values, const at::Tensor& mask,
                               const AttentionOptions& options, bool is_causal) {
  std::optional<at::Tensor> bias;
  if (mask.defined()) {
    bias = aligned_mask(mask, keys.size(2))
               .expand({queries.size(0), queries.size(1), queries.size(2), keys.size(2)});
  }
  const auto repeats = queries.size(1) / keys.size(1);
  const auto for_each_head = [&](const at::Tensor& heads) {
    return dense_heads(repeats == 1 ? heads : heads.repeat_interleave(repeats, 1));
  };
  return std::get<0>(at::_scaled_dot_product_efficient_attention(
      dense_heads(queries), for_each_head(keys), for_each_head(values), bias,
      /*compute_log_sumexp=*/at::GradMode::is_enabled(), options.dropout, is_causal,
      options.scale));
}

void check_packed(const AttentionOptions& options, const at::Tensor& query, const at::Tensor& key) {
  check(
      !options.padding_mask.defined() && !options.bias.defined(),
      "attention: packed documents together with a mask or a bias; leave these out, documents see "
      "only themselves");
  ops::check_fills(*options.documents, query.size(0), query.size(1), key.size(1));
}

bool has_documents_kernel(const at::Tensor& query) {
  const bool is_short = query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf;
  return query.is_cuda() && is_short && ops::can_fuse_attention(query.size(3)) &&
         !tensor::is_pretended();
}

// All documents in one launch of flash attention.
at::Tensor flash_attention_of_documents(const at::Tensor& query, const at::Tensor& key,
                                        const at::Tensor& value, const AttentionOptions& options) {
  const auto& [lengths, longest, positions, starts] = *options.documents;
  const auto side_by_side = [](const at::Tensor& rows) { return dense_heads(rows).flatten(0, 1); };
  const auto result = at::_flash_attention_forward(
      side_by_side(query), side_by_side(key), side_by_side(value), starts, starts, longest, longest,
      options.dropout, options.causal, /*return_debug_mask=*/false, options.scale);
  return std::get<0>(result).view(query.sizes());
}

// Document by document, on views: no scores between documents are computed, nothing is masked, and
// the gradients of all views are joined once.
at::Tensor attention_by_document(const at::Tensor& query, const at::Tensor& key,
                                 const at::Tensor& value, AttentionOptions options) {
  const auto documents = std::move(options.documents);
  const at::IntArrayRef lengths = documents->lengths;
  const auto documents_of = [&](const at::Tensor& rows) {
    return rows.flatten(0, 1).split_with_sizes(lengths, 0);
  };
  const auto queries = documents_of(query), keys = documents_of(key), values = documents_of(value);
  std::vector<at::Tensor> results;
  results.reserve(queries.size());
  for (size_t i = 0; i < queries.size(); ++i) {
    results.push_back(
        attention(queries[i].unsqueeze(0), keys[i].unsqueeze(0), values[i].unsqueeze(0), options)
            .squeeze(0));
  }
  return at::cat(results, 0).view(query.sizes());
}

at::Tensor attention_of_documents(const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& value, const AttentionOptions& options) {
  const bool is_narrow = options.window > 0 && options.window < options.documents->longest;
  if (has_documents_kernel(query) && !is_narrow) {
    return flash_attention_of_documents(query, key, value, options);
  }
  return attention_by_document(query, key, value, options);
}

}  // namespace

bool ops::attends_by_document(const at::Tensor& query) {
  return query.is_cpu() || has_documents_kernel(query);
}

at::Tensor ops::bias_hiding_keys(const at::Tensor& bias, const at::Tensor& padding_mask) {
  if (hides_nothing(padding_mask)) return bias;
  check(bias.dim() == 4 && padding_mask.dim() == 2 && padding_mask.size(1) == bias.size(3),
        "attention: a bias of {} dimensions for {} keys with a padding mask of {} for {}; expected "
        "4 and 2, for as many keys",
        bias.dim(), bias.size(-1), padding_mask.dim(), padding_mask.size(-1));
  return with_lowest(for_scores(padding_mask), bias);
}

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionOptions& options) {
  check_attention_shapes(query, key, value);
  check_attention_options(options, query, key);
  if (options.documents != nullptr && query.numel() > 0) {
    check_packed(options, query, key);
    if (!options.documents->are_rows()) return attention_of_documents(query, key, value, options);
  }
  if (query.numel() == 0) return query.clone();
  check(key.size(1) > 0, "attention: there are {} queries but no keys; give at least one key",
        query.size(1));
  const auto queries = query.transpose(1, 2), keys = key.transpose(1, 2);
  const auto values = value.transpose(1, 2);
  const bool is_plain = is_plainly_causal(options, query.size(1), key.size(1));
  if (can_use_flash(query, key, value, options)) {
    const auto mask = score_mask(options, query, key, is_plain);
    const auto result = at::_scaled_dot_product_flash_attention_for_cpu(
        queries, keys, values, 0.0, is_plain, mask.defined() ? std::optional(mask) : std::nullopt,
        options.scale);
    return std::get<0>(result).transpose(1, 2);
  }
  // torch's general function takes the causal rule or a mask, never both.
  const bool is_causal = is_plain && !options.bias.defined() && hides_nothing(options.padding_mask);
  const auto mask = score_mask(options, query, key, is_causal);
  if (can_use_efficient(query, mask)) {
    // This kernel takes both, and leaves out what the rule hides. Of the bias's gradient it leaves
    // anything there; backward of the mask, which hides the same, does not read it.
    return efficient_attention(queries, keys, values, mask, options, is_plain).transpose(1, 2);
  }
  if (ops::prefers_cudnn(query) && !mask.defined()) {
    const auto made =
        ops::cudnn_attention(queries, keys, values, options.dropout, is_causal, options.scale);
    if (made.defined()) return made.transpose(1, 2);
  }
  return at::scaled_dot_product_attention(queries, keys, values,
                                          mask.defined() ? std::optional(mask) : std::nullopt,
                                          options.dropout, is_causal, options.scale,
                                          /*enable_gqa=*/query.size(2) != key.size(2))
      .transpose(1, 2);
}

}  // namespace fullshard
