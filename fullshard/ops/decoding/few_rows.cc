// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/decoding/few_rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "fullshard/ops/decoding/device_decoding.h"
#include "fullshard/ops/kernels/few_rows_kernels.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/ops/products/low_rank.h"
#include "fullshard/ops/products/norm_projection.h"

namespace fullshard::ops {
namespace {

// Absent, or as the kernel reads it beside `input`.
bool is_plain_beside(const at::Tensor& tensor, const at::Tensor& input) {
  return !tensor.defined() ||
         (tensor.is_cpu() && tensor.scalar_type() == input.scalar_type() && tensor.is_contiguous());
}

bool has_few_rows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual = {}) {
  if (!has_cpu_kernel({input, weight}) || at::GradMode::is_enabled()) return false;
  const int64_t num_rows = num_rows_of(input);
  return num_rows > 0 && num_rows <= kMostFewRows && weight.dim() == 2 &&
         weight.size(1) == input.size(-1) && is_plain_beside(weight, input) &&
         is_plain_beside(bias, input) && is_plain_beside(residual, input) &&
         (!residual.defined() || residual.numel() == num_rows * weight.size(0));
}

at::Tensor packed_rows(const at::Tensor& input) {
  const auto dense = input.contiguous();
  auto packed = at::empty({input.numel()}, input.options().dtype(at::kFloat));
  with_stored_type(dense, [&]<class Stored>(Stored*) {
    pack_few_rows(packed.mutable_data_ptr<float>(), elements<Stored>(dense), num_rows_of(input),
                  input.size(-1));
  });
  return packed;
}

struct FewRowsTerms {
  const at::Tensor& weight;
  const at::Tensor& bias;
  const at::Tensor& residual;
};

template <class Stored>
const Stored* elements_if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? elements<Stored>(tensor) : nullptr;
}

// `packed` are the rows of `input`.
at::Tensor multiply_packed(const at::Tensor& packed, const at::Tensor& input,
                           const FewRowsTerms& terms) {
  auto output = at::empty(sizes_of_width(input, terms.weight.size(0)), input.options());
  with_stored_type(input, [&]<class Stored>(Stored*) {
    const FewRowsProduct<Stored> product{.output = mutable_elements<Stored>(output),
                                         .num_outputs = terms.weight.size(0),
                                         .packed = packed.const_data_ptr<float>(),
                                         .num_inputs = num_rows_of(input),
                                         .width = input.size(-1),
                                         .weight = elements<Stored>(terms.weight),
                                         .bias = elements_if_defined<Stored>(terms.bias),
                                         .residual = elements_if_defined<Stored>(terms.residual)};
    at::parallel_for(0, product.num_outputs, rows_per_thread(product.width),
                     [&](int64_t begin, int64_t end) { multiply_few_rows(product, begin, end); });
  });
  return output;
}

at::Tensor few_rows_on_device(const at::Tensor& input, const FewRowsOperands& operands,
                              const at::Tensor& residual) {
  auto output = at::empty(sizes_of_width(input, operands.num_outputs()), input.options());
  device_few_rows(output, input, operands, residual);
  return output;
}

// As activated_projection.
at::Tensor few_rows_activated_projection(const Projected& input, Activation kind,
                                         const LinearTerms& layer, const at::Tensor& residual) {
  const bool has_parts = !input.packed.defined() && input.parts.size() <= 2;
  const bool is_taken =
      has_parts && (!layer.is_plain() || has_few_rows(input.parts[0], layer.weight, layer.bias));
  if (!is_taken) return activated_projection(input, kind, layer, residual);
  const auto activated = input.parts.size() == 2 ? gated(input.parts[0], input.parts[1], kind)
                                                 : activate(input.parts[0], kind);
  return few_rows_linear(activated, layer, residual);
}

bool are_plain(const std::vector<LinearTerms>& layers) {
  return std::ranges::all_of(layers, &LinearTerms::is_plain);
}

std::vector<at::Tensor> weights_of(const std::vector<LinearTerms>& layers) {
  std::vector<at::Tensor> weights;
  for (const auto& layer : layers) weights.push_back(layer.weight);
  return weights;
}

std::vector<at::Tensor> biases_of(const std::vector<LinearTerms>& layers) {
  std::vector<at::Tensor> biases;
  for (const auto& layer : layers) biases.push_back(layer.bias);
  return biases;
}

}  // namespace

int64_t FewRowsOperands::num_outputs() const {
  if (is_gated()) return weights.front().size(0);
  int64_t sum = 0;
  for (const auto& weight : weights) sum += weight.size(0);
  return sum;
}

at::Tensor few_rows_linear(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& residual) {
  const FewRowsOperands operands{.weights = {weight}, .biases = {bias}};
  if (has_device_few_rows(input, operands, residual)) {
    return few_rows_on_device(input, operands, residual);
  }
  if (!has_few_rows(input, weight, bias, residual)) return linear(input, weight, bias, residual);
  return multiply_packed(packed_rows(input), input, {weight, bias, residual});
}

Projected few_rows_norm_projection(const at::Tensor& input, const NormTerms& norm,
                                   const std::vector<at::Tensor>& weights,
                                   const std::vector<at::Tensor>& biases) {
  const FewRowsOperands operands{.weights = weights, .biases = biases, .norm = &norm};
  if (has_device_few_rows(input, operands, {})) {
    return {.packed = few_rows_on_device(input, operands, {})};
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!has_few_rows(input, weights[i], biases[i])) {
      return norm_projection(input, norm, weights, biases).projected;
    }
  }
  const auto normalised = apply_norm(input, norm);
  const auto packed = packed_rows(normalised);
  Projected result;
  for (size_t i = 0; i < weights.size(); ++i) {
    result.parts.push_back(multiply_packed(packed, normalised, {weights[i], biases[i], {}}));
  }
  return result;
}

at::Tensor few_rows_linear(const at::Tensor& input, const LinearTerms& layer,
                           const at::Tensor& residual) {
  if (layer.is_plain()) return few_rows_linear(input, layer.weight, layer.bias, residual);
  return linear_by(
      [](const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
         const at::Tensor& added) { return few_rows_linear(rows, weight, bias, added); },
      input, layer, residual);
}

Projected few_rows_norm_projection(const at::Tensor& input, const NormTerms& norm,
                                   const std::vector<LinearTerms>& layers) {
  if (are_plain(layers)) {
    return few_rows_norm_projection(input, norm, weights_of(layers), biases_of(layers));
  }
  const auto normalised = apply_norm(input, norm);
  Projected result;
  for (const auto& layer : layers) result.parts.push_back(few_rows_linear(normalised, layer));
  return result;
}

at::Tensor few_rows_feed_forward(const at::Tensor& input, const NormTerms& norm,
                                 const FeedForwardLayers& layers) {
  if (are_plain(layers.inner)) {
    const FewRowsOperands operands{.weights = weights_of(layers.inner),
                                   .biases = biases_of(layers.inner),
                                   .norm = &norm,
                                   .activation = layers.activation};
    if (has_device_few_rows(input, operands, {})) {
      return few_rows_linear(few_rows_on_device(input, operands, {}), layers.outer, input);
    }
  }
  const auto rows = few_rows_norm_projection(input, norm, layers.inner);
  return few_rows_activated_projection(rows, layers.activation, layers.outer, input);
}

}  // namespace fullshard::ops
