// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/ops/absent_tensor.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/ops/products/int8_rows.h"
#include "fullshard/ops/products/projection.h"
#include "fullshard/ops/products/weight_gradient.h"

namespace fullshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<int64_t> output_sizes(const at::Tensor& input, const at::Tensor& weight) {
  return ops::sizes_of_width(input, weight.size(0));
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            ops::ResultUse use) {
    context->save_for_backward({input, weight});
    context->saved_data["parameter"] = weight;
    context->saved_data["has_bias"] = bias.has_value();
    if (use == ops::ResultUse::graph_only) {
      return at::empty(output_sizes(input, weight), input.options());
    }
    return at::linear(input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& input = saved[0];
    const auto& weight = saved[1];
    const auto& output_gradient = gradients[0];
    at::Tensor input_gradient, own_gradient, to_bias;
    if (context->needs_input_grad(0)) input_gradient = output_gradient.matmul(weight);
    if (context->needs_input_grad(1)) {
      const auto& parameter = context->saved_data["parameter"].toTensor();
      own_gradient = ops::weight_gradient(parameter, input, output_gradient);
    }
    const bool has_bias = context->saved_data["has_bias"].toBool();
    if (has_bias && context->needs_input_grad(2)) to_bias = ops::as_matrix(output_gradient).sum(0);
    return {input_gradient, own_gradient, to_bias, at::Tensor()};
  }
};

// Input, weight, bias and residual, of which the last two may be empty: absent.
struct DeviceLinearFunction : torch::autograd::Function<DeviceLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& given_bias,
                            const at::Tensor& given_residual) {
    const auto bias = ops::undefined_if_empty(given_bias);
    const auto residual = ops::undefined_if_empty(given_residual);
    auto output = at::empty(output_sizes(input, weight), input.options());
    const auto maxima = ops::project(ops::as_matrix(output), ops::as_matrix(input), weight, bias,
                                     residual.defined() ? ops::as_matrix(residual) : at::Tensor());
    // Only the weight's gradient asks for the input.
    const auto kept = weight.requires_grad() ? input : at::Tensor();
    context->save_for_backward({kept, weight, maxima.rows, maxima.weights});
    context->saved_data["weight"] = weight;
    context->saved_data["is_hybrid"] = maxima.is_hybrid;
    context->saved_data["bias"] = bias;
    context->saved_data["sizes"] = input.sizes().vec();
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    ops::refuse_second_derivative("linear");
    const auto saved = context->get_saved_variables();
    const auto& input = saved[0];
    const auto output_gradient = gradients[0].contiguous();
    ops::ProjectionGradient gradient(
        gradients[0], {saved[2], saved[3], context->saved_data["is_hybrid"].toBool()});
    variable_list results(4);
    if (context->needs_input_grad(1)) {
      const auto& parameter = context->saved_data["weight"].toTensor();
      results[1] = gradient.to_weights({parameter}, {true}, ops::as_matrix(input)).front();
    }
    if (context->needs_input_grad(2)) {
      results[2] = ops::bias_gradient(context->saved_data["bias"].toTensor(), output_gradient);
    }
    if (context->needs_input_grad(0)) {
      results[0] = at::empty(context->saved_data["sizes"].toIntVector(), output_gradient.options());
      gradient.to_rows(ops::as_matrix(results[0]), saved[1]);
    }
    if (context->needs_input_grad(3)) results[3] = gradients[0];
    return results;
  }
};

bool multiplies_on_device(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                          const at::Tensor& residual) {
  if (!ops::has_cuda_kernel({input, weight, bias, residual})) return false;
  const bool has_matrices = input.dim() >= 1 && weight.dim() == 2 && weight.is_contiguous() &&
                            input.size(-1) == weight.size(1) && input.numel() > 0;
  const bool has_vector = !bias.defined() || (bias.dim() == 1 && bias.is_contiguous() &&
                                              bias.size(0) == weight.size(0));
  return has_matrices && has_vector &&
         (!residual.defined() || residual.sizes() == output_sizes(input, weight));
}

at::Tensor composed_linear(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, ops::ResultUse use) {
  const bool has_gradient = weight.requires_grad() && weight.is_leaf();
  if (!has_gradient || !at::GradMode::is_enabled()) return at::linear(input, weight, bias);
  // Autocast knows the dtype of a result once it has made it.
  const bool is_cast = at::autocast::is_autocast_enabled(input.device().type());
  return LinearFunction::apply(input, weight, bias.defined() ? std::optional(bias) : std::nullopt,
                               is_cast ? ops::ResultUse::values : use);
}

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  if (multiplies_on_device(input, weight, bias, {})) {
    return DeviceLinearFunction::apply(input, weight, ops::empty_if_absent(bias, input),
                                       ops::empty_if_absent({}, input));
  }
  return composed_linear(input, weight, bias, ops::ResultUse::values);
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual, ops::ResultUse use) {
  if (multiplies_on_device(input, weight, bias, residual)) {
    return DeviceLinearFunction::apply(input, weight, ops::empty_if_absent(bias, input),
                                       ops::empty_if_absent(residual, input));
  }
  const auto branch = composed_linear(input, weight, bias, use);
  return residual.defined() ? residual + branch : branch;
}

LowRankFactorImpl::LowRankFactorImpl(int64_t outputs, int64_t inputs,
                                     const at::TensorOptions& options)
    : weight(register_parameter("weight", at::zeros({outputs, inputs}, options))) {}

LinearTerms LinearImpl::terms() const {
  LinearTerms terms{.weight = weight, .bias = bias};
  if (is_quantised()) terms.row_scales = weight_scale_.view(at::kFloat);
  if (!is_adapted()) return terms;
  terms.low_rank = {.a = lora_a_->weight,
                    .b = lora_b_->weight,
                    .scale = adapter_.scale,
                    .dropout = is_training() ? adapter_.dropout : 0};
  return terms;
}

void LinearImpl::adapt(const LowRankOptions& part) {
  check(!is_adapted(), "adapt: the layer has an adapter already");
  check(!is_head(), "adapt: the layer is a head, which takes no adapter");
  check(part.rank > 0, "adapt: rank {}, expected at least 1", part.rank);
  adapter_ = part;
  const auto like = at::TensorOptions()
                        .device(weight.device())
                        .dtype(weight.is_floating_point() ? weight.scalar_type() : at::kFloat);
  lora_a_ = register_module("lora_A", LowRankFactor(part.rank, weight.size(1), like));
  lora_b_ = register_module("lora_B", LowRankFactor(weight.size(0), part.rank, like));
  if (lora_a_->weight.is_meta()) return;
  // kaiming_uniform with a = sqrt(5), as PEFT has it.
  const at::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(weight.size(1)));
  lora_a_->weight.uniform_(-bound, bound);
}

void LinearImpl::quantise() {
  if (is_quantised()) return;
  const at::NoGradGuard no_grad;
  const auto rows =
      weight.is_meta()
          ? ops::Int8Rows{at::empty_like(weight, at::kChar),
                          at::empty({weight.size(0)}, weight.options().dtype(at::kFloat))}
          : ops::int8_rows(weight);
  weight = parameters_["weight"] = rows.values.detach();
  weight_scale_ = register_parameter("weight_scale", rows.scales.view(at::kInt),
                                     /*requires_grad=*/false);
}

}  // namespace fullshard
