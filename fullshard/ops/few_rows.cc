// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/few_rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "fullshard/ops/activated_projection.h"
#include "fullshard/ops/kernels/few_rows_kernels.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/linear.h"
#include "fullshard/ops/norm_projection.h"

namespace fullshard::ops {
namespace {

bool is_plain_float(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat;
}

bool has_few_rows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  if (!is_plain_float(input) || !is_plain_float(weight) || at::GradMode::is_enabled()) return false;
  const int64_t num_rows = input.size(-1) == 0 ? 0 : input.numel() / input.size(-1);
  return num_rows > 0 && num_rows <= kMostFewRows && weight.dim() == 2 && weight.is_contiguous() &&
         weight.size(1) == input.size(-1) &&
         (!bias.defined() || (bias.scalar_type() == input.scalar_type() && bias.is_contiguous()));
}

at::Tensor multiply_on_cpu(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias) {
  auto sizes = input.sizes().vec();
  sizes.back() = weight.size(0);
  auto output = at::empty(sizes, input.options());
  const auto dense = input.contiguous();
  const FewRowsProduct product{.output = output.mutable_data_ptr<float>(),
                               .num_outputs = weight.size(0),
                               .inputs = dense.const_data_ptr<float>(),
                               .num_inputs = input.numel() / input.size(-1),
                               .width = input.size(-1),
                               .weight = weight.const_data_ptr<float>(),
                               .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr};
  at::parallel_for(0, product.num_outputs, rows_per_thread(product.width),
                   [&](int64_t begin, int64_t end) { multiply_few_rows(product, begin, end); });
  return output;
}

}  // namespace

at::Tensor few_rows_linear(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& residual) {
  if (!has_few_rows(input, weight, bias)) return linear(input, weight, bias, residual);
  auto output = multiply_on_cpu(input, weight, bias);
  return residual.defined() ? output.add_(residual) : output;
}

Projected few_rows_norm_projection(const at::Tensor& input, const NormTerms& norm,
                                   const std::vector<at::Tensor>& weights,
                                   const std::vector<at::Tensor>& biases) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!has_few_rows(input, weights[i], biases[i])) {
      return norm_projection(input, norm, weights, biases).projected;
    }
  }
  const auto normalised = apply_norm(input, norm);
  Projected result;
  for (size_t i = 0; i < weights.size(); ++i) {
    result.parts.push_back(multiply_on_cpu(normalised, weights[i], biases[i]));
  }
  return result;
}

at::Tensor few_rows_activated_projection(const Projected& input, Activation kind,
                                         const at::Tensor& weight, const at::Tensor& bias,
                                         const at::Tensor& residual) {
  if (input.packed.defined() || input.parts.size() > 2 ||
      !has_few_rows(input.parts.front(), weight, bias)) {
    return activated_projection(input, kind, weight, bias, residual);
  }
  const auto activated = input.parts.size() == 2 ? gated(input.parts[0], input.parts[1], kind)
                                                 : activate(input.parts[0], kind);
  return few_rows_linear(activated, weight, bias, residual);
}

}  // namespace fullshard::ops
