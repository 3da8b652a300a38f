// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/weight_gradient.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "fullshard/nn/gradient_hook.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/joined_rows.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/ops/wide_gradient.h"

namespace fullshard::ops {
namespace {

// Whether a product of such operands may end there, added in fp32 on the way.
bool takes_product(const at::Tensor& target, const at::Tensor& operand) {
  const bool fits =
      target.scalar_type() == operand.scalar_type() || target.scalar_type() == at::kFloat;
  return fits && target.dim() == 2 && target.is_contiguous();
}

at::Tensor returned_product(const at::Tensor& left, const at::Tensor& right) {
  if (!has_cuda_kernel({left, right})) return left.mm(right);
  auto result = at::empty({left.size(0), right.size(1)}, right.options());
  device_product(result, left, right);
  return result;
}

void write_product(const nn::GradientSink& sink, const at::Tensor& left, const at::Tensor& right) {
  at::Tensor target = sink.target;
  const bool same_dtype = target.scalar_type() == right.scalar_type();
  if (has_cuda_kernel({left, right}) && takes_product(target, right)) {
    device_product(target, left, right, sink.accumulate);
  } else if (same_dtype && sink.accumulate) {
    target.addmm_(left, right);
  } else if (same_dtype) {
    at::mm_out(target, left, right);
  } else if (sink.accumulate) {
    target.add_(left.mm(right));
  } else {
    target.copy_(left.mm(right));
  }
}

// One sink over all of them; without a target when they are not neighbours or not alike.
nn::GradientSink joined_sink(const std::vector<nn::GradientSink>& sinks) {
  std::vector<at::Tensor> targets;
  for (const auto& sink : sinks) {
    if (!sink.target.defined() || sink.accumulate != sinks.front().accumulate) return {};
    targets.push_back(sink.target);
  }
  return {joined_rows(targets), sinks.front().accumulate};
}

}  // namespace

at::Tensor weight_gradient(const at::Tensor& parameter, const at::Tensor& input,
                           const at::Tensor& output_gradient) {
  const auto left = as_matrix(output_gradient).t();
  const auto right = as_matrix(input);
  const auto sink = nn::open_gradient_sink(parameter);
  if (!sink.target.defined()) return returned_product(left, right);
  write_product(sink, left, right);
  return {};
}

std::vector<at::Tensor> weight_gradients(const std::vector<at::Tensor>& parameters,
                                         const std::vector<bool>& is_wanted,
                                         const at::Tensor& input,
                                         const at::Tensor& output_gradient) {
  const auto left = as_matrix(output_gradient).t();
  const auto right = as_matrix(input);
  std::vector<nn::GradientSink> sinks(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (is_wanted[i]) sinks[i] = nn::open_gradient_sink(parameters[i]);
  }
  std::vector<at::Tensor> results(parameters.size());
  if (const auto whole = joined_sink(sinks); whole.target.defined()) {
    write_product(whole, left, right);
    return results;
  }
  int64_t first = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t width = parameters[i].size(0);
    const auto own = left.narrow(0, first, width);
    first += width;
    if (!is_wanted[i]) continue;
    if (sinks[i].target.defined()) {
      write_product(sinks[i], own, right);
    } else {
      results[i] = returned_product(own, right);
    }
  }
  return results;
}

at::Tensor bias_gradient(const at::Tensor& parameter, const at::Tensor& output_gradient) {
  const auto rows = as_matrix(output_gradient);
  if (!has_cuda_kernel(rows)) return rows.sum(0);
  const WideGradient gradient(parameter);
  const bool is_dense = rows.stride(1) == 1 || rows.size(1) == 1;
  device_column_sums(gradient.target(), is_dense ? rows : rows.contiguous());
  return gradient.finish();
}

}  // namespace fullshard::ops
