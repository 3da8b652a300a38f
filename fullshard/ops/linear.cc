#include "fullshard/ops/linear.h"

#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "fullshard/ops/weight_gradient.h"

namespace fullshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
    context->save_for_backward({input, weight});
    context->saved_data["parameter"] = weight;
    context->saved_data["has_bias"] = bias.has_value();
    return at::linear(input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& input = saved[0];
    const auto& weight = saved[1];
    const auto& output_gradient = gradients[0];
    at::Tensor input_gradient, own_gradient, bias_gradient;
    if (context->needs_input_grad(0)) input_gradient = output_gradient.matmul(weight);
    if (context->needs_input_grad(1)) {
      const auto& parameter = context->saved_data["parameter"].toTensor();
      own_gradient = weight_gradient(parameter, input, output_gradient);
    }
    const bool has_bias = context->saved_data["has_bias"].toBool();
    if (has_bias && context->needs_input_grad(2)) bias_gradient = as_matrix(output_gradient).sum(0);
    return {input_gradient, own_gradient, bias_gradient};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  const bool has_gradient = weight.requires_grad() && weight.is_leaf();
  if (!has_gradient || !at::GradMode::is_enabled()) return at::linear(input, weight, bias);
  return LinearFunction::apply(input, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

}  // namespace fullshard
