// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/weight_gradient.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <utility>

#include "fullshard/nn/gradient_hook.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/ops/products/joined_rows.h"
#include "fullshard/ops/wide_gradient.h"

namespace fullshard::ops {
namespace {

// Whether a product of such operands may end there, added in fp32 on the way.
bool takes_product(const at::Tensor& target, const at::Tensor& operand) {
  const bool fits =
      target.scalar_type() == operand.scalar_type() || target.scalar_type() == at::kFloat;
  return fits && target.dim() == 2 && target.is_contiguous();
}

// Makes rows of the gradient of one or several weights, one below the other.
class GradientRows {
 public:
  GradientRows() = default;
  virtual ~GradientRows() = default;
  GradientRows(const GradientRows&) = delete;
  GradientRows& operator=(const GradientRows&) = delete;

  virtual at::Tensor make(int64_t first, int64_t count) const = 0;
  virtual void write(const nn::GradientSink& sink, int64_t first, int64_t count) const = 0;
};

void put(const nn::GradientSink& sink, const at::Tensor& gradient) {
  at::Tensor target = sink.target;
  if (sink.accumulate) {
    target.add_(gradient);
  } else {
    target.copy_(gradient);
  }
}

class PlainRows : public GradientRows {
 public:
  PlainRows(const at::Tensor& output_gradient, const at::Tensor& input)
      : left_(as_matrix(output_gradient).t()), right_(as_matrix(input)) {}

  at::Tensor make(int64_t first, int64_t count) const override {
    const auto left = left_.narrow(0, first, count);
    if (!has_cuda_kernel({left, right_})) return left.mm(right_);
    auto result = at::empty({count, right_.size(1)}, right_.options());
    device_product(result, left, right_);
    return result;
  }

  void write(const nn::GradientSink& sink, int64_t first, int64_t count) const override {
    const auto left = left_.narrow(0, first, count);
    at::Tensor target = sink.target;
    const bool same_dtype = target.scalar_type() == right_.scalar_type();
    if (has_cuda_kernel({left, right_}) && takes_product(target, right_)) {
      device_product(target, left, right_, sink.accumulate);
    } else if (same_dtype && sink.accumulate) {
      target.addmm_(left, right_);
    } else if (same_dtype) {
      at::mm_out(target, left, right_);
    } else {
      put(sink, left.mm(right_));
    }
  }

 private:
  at::Tensor left_, right_;
};

class Fp8GradientRows : public GradientRows {
 public:
  Fp8GradientRows(const Fp8Operand& output_gradient, const Fp8Operand& input)
      : left_(output_gradient), right_(input) {}

  at::Tensor make(int64_t first, int64_t count) const override {
    auto result =
        at::empty({count, right_.values.size(0)}, right_.values.options().dtype(at::kBFloat16));
    device_fp8_product(result, left_.narrow(first, count), right_);
    return result;
  }

  void write(const nn::GradientSink& sink, int64_t first, int64_t count) const override {
    const auto& target = sink.target;
    const bool fits = target.scalar_type() == at::kFloat || target.scalar_type() == at::kBFloat16;
    if (!fits || !target.is_contiguous()) return put(sink, make(first, count));
    device_fp8_product(target, left_.narrow(first, count), right_, {.accumulate = sink.accumulate});
  }

 private:
  Fp8Operand left_, right_;
};

// One sink over all of them; without a target when they are not neighbours or not alike.
nn::GradientSink joined_sink(const std::vector<nn::GradientSink>& sinks) {
  std::vector<at::Tensor> targets;
  for (const auto& sink : sinks) {
    if (!sink.target.defined() || sink.accumulate != sinks.front().accumulate) return {};
    targets.push_back(sink.target);
  }
  return {joined_rows(targets), sinks.front().accumulate};
}

std::vector<at::Tensor> place_gradients(const std::vector<at::Tensor>& parameters,
                                        const std::vector<bool>& is_wanted,
                                        const GradientRows& rows) {
  std::vector<nn::GradientSink> sinks(parameters.size());
  int64_t num_rows = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (is_wanted[i]) sinks[i] = nn::open_gradient_sink(parameters[i]);
    num_rows += parameters[i].size(0);
  }
  std::vector<at::Tensor> results(parameters.size());
  if (const auto whole = joined_sink(sinks); whole.target.defined()) {
    rows.write(whole, 0, num_rows);
    return results;
  }
  int64_t first = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t own_first = std::exchange(first, first + parameters[i].size(0));
    if (!is_wanted[i]) continue;
    if (sinks[i].target.defined()) {
      rows.write(sinks[i], own_first, parameters[i].size(0));
    } else {
      results[i] = rows.make(own_first, parameters[i].size(0));
    }
  }
  return results;
}

}  // namespace

at::Tensor weight_gradient(const at::Tensor& parameter, const at::Tensor& input,
                           const at::Tensor& output_gradient) {
  return place_gradients({parameter}, {true}, PlainRows(output_gradient, input)).front();
}

std::vector<at::Tensor> weight_gradients(const std::vector<at::Tensor>& parameters,
                                         const std::vector<bool>& is_wanted,
                                         const at::Tensor& input,
                                         const at::Tensor& output_gradient) {
  return place_gradients(parameters, is_wanted, PlainRows(output_gradient, input));
}

std::vector<at::Tensor> weight_gradients(const std::vector<at::Tensor>& parameters,
                                         const std::vector<bool>& is_wanted,
                                         const Fp8Operand& output_gradient,
                                         const Fp8Operand& input) {
  return place_gradients(parameters, is_wanted, Fp8GradientRows(output_gradient, input));
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
