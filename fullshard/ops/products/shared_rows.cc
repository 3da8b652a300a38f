// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/shared_rows.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/ops/absent_tensor.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/ops/products/low_rank.h"
#include "fullshard/ops/products/projection.h"
#include "fullshard/ops/products/weight_gradient.h"

namespace fullshard::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Tensors: the input, a weight per layer, and a bias per layer, empty where absent. Results: one
// per layer, and the input.
struct SharedRowsFunction : torch::autograd::Function<SharedRowsFunction> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors) {
    const size_t count = (tensors.size() - 1) / 2;
    const auto rows = as_matrix(tensors[0]);
    // Only gradients of weights ask for the input.
    const bool keeps_input = std::ranges::any_of(
        tensors.slice(1, count), [](const at::Tensor& weight) { return weight.requires_grad(); });
    variable_list results, saved{keeps_input ? tensors[0] : at::Tensor()};
    bool is_hybrid = false;
    at::Tensor largest;  // of the rows, which the first product in fp8 finds
    for (size_t i = 0; i < count; ++i) {
      const auto& weight = tensors[1 + i];
      results.push_back(at::empty(sizes_of_width(tensors[0], weight.size(0)), rows.options()));
      const auto bias = undefined_if_empty(tensors[1 + count + i]);
      const auto maxima = project(as_matrix(results.back()), rows, weight, bias, {}, largest);
      largest = maxima.rows;
      is_hybrid = maxima.is_hybrid;
      saved.insert(saved.end(), {weight, maxima.rows, maxima.weights});
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["parameters"] = tensors.slice(1).vec();
    context->saved_data["is_hybrid"] = is_hybrid;
    context->saved_data["sizes"] = tensors[0].sizes().vec();
    // What nobody used has no gradient, and makes no zeros.
    context->set_materialize_grads(false);
    results.push_back(tensors[0].detach());
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative("shared_rows");
    const auto parameters = context->saved_data["parameters"].toTensorVector();
    const auto saved = context->get_saved_variables();
    const size_t count = parameters.size() / 2;
    variable_list results(parameters.size() + 1);
    at::Tensor sum = gradients[count];  // of the input's gradients so far
    for (size_t i = 0; i < count; ++i) {
      if (!gradients[i].defined()) continue;
      const auto* own = &saved[1 + 3 * i];
      ProjectionGradient gradient(gradients[i],
                                  {own[1], own[2], context->saved_data["is_hybrid"].toBool()});
      if (context->needs_input_grad(1 + i)) {
        results[1 + i] = gradient.to_weights({parameters[i]}, {true}, as_matrix(saved[0])).front();
      }
      if (context->needs_input_grad(1 + count + i)) {
        results[1 + count + i] = bias_gradient(parameters[count + i], gradient.matrix());
      }
      if (!context->needs_input_grad(0)) continue;
      // The gradient of the residual may belong to others too: the first sum has its own memory.
      auto& target = results[0];
      if (!target.defined()) {
        target = at::empty(context->saved_data["sizes"].toIntVector(), gradients[i].options());
      }
      gradient.to_rows(as_matrix(target), own[0],
                       sum.defined() ? as_matrix(sum.contiguous()) : at::Tensor());
      sum = target;
    }
    results[0] = sum;
    return results;
  }
};

bool shares_on_device(const at::Tensor& input, const std::vector<LinearTerms>& layers) {
  if (input.dim() < 1 || input.numel() == 0) return false;
  return std::ranges::all_of(layers, [&](const LinearTerms& layer) {
    const auto& [weight, bias, low_rank, row_scales] = layer;
    if (!layer.is_plain() || !has_cuda_kernel({input, weight, bias})) return false;
    if (weight.dim() != 2 || !weight.is_contiguous() || weight.size(1) != input.size(-1)) {
      return false;
    }
    return !bias.defined() ||
           (bias.dim() == 1 && bias.size(0) == weight.size(0) && bias.is_contiguous());
  });
}

}  // namespace

SharedRows shared_rows(const at::Tensor& input, const std::vector<LinearTerms>& layers) {
  check(!layers.empty(), "shared_rows: no layer; give at least one");
  if (!shares_on_device(input, layers)) {
    SharedRows result{{}, input};
    for (const auto& layer : layers) result.parts.push_back(linear(input, layer));
    return result;
  }
  variable_list tensors{input.contiguous()};
  for (const auto& layer : layers) tensors.push_back(layer.weight);
  for (const auto& layer : layers) tensors.push_back(empty_if_absent(layer.bias, input));
  auto parts = SharedRowsFunction::apply(at::TensorList(tensors));
  auto residual = std::move(parts.back());
  parts.pop_back();
  return {std::move(parts), std::move(residual)};
}

}  // namespace fullshard::ops
