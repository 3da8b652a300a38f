// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/activated_projection.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/ops/absent_tensor.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/dropout.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/ops/last_use.h"
#include "fullshard/ops/products/adapted_projection.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/ops/products/projection.h"
#include "fullshard/ops/products/weight_gradient.h"

namespace fullshard::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ActivatedProjectionFunction : torch::autograd::Function<ActivatedProjectionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& weight, const at::Tensor& given_bias,
                            const at::Tensor& given_residual, int64_t kind, ResultUse use,
                            double probability) {
    const auto bias = undefined_if_empty(given_bias);
    const auto residual = undefined_if_empty(given_residual);
    const auto input = given.contiguous();
    const auto largest = make_largest_for(input, weight);
    const bool is_read = use == ResultUse::values;
    at::Tensor activated;
    const auto dropout = Dropout::make(probability, input);
    if (is_read || largest.defined() || probability > 0) {
      activated = at::empty(sizes_of_width(input, weight.size(1)), input.options());
      device_activate(activated, input, Activation(kind), largest, dropout);
    }
    auto output = at::empty(sizes_of_width(input, weight.size(0)), input.options());
    Fp8Maxima maxima;
    if (is_read) {
      const auto project_rows = is_product_of_gate(input, weight) ? project_wide : project;
      maxima = project_rows(as_matrix(output), as_matrix(activated), weight, bias,
                            residual.defined() ? as_matrix(residual) : at::Tensor(), largest);
    } else if (largest.defined()) {
      maxima = maxima_of(as_matrix(activated), weight, largest);
    }
    context->save_for_backward({input, weight, maxima.rows, maxima.weights, dropout.drawn});
    context->saved_data["dropout"] = probability;
    context->saved_data["weight"] = weight;
    context->saved_data["is_hybrid"] = maxima.is_hybrid;
    context->saved_data["bias"] = bias;
    context->saved_data["kind"] = kind;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative("activated_projection");
    const auto saved = context->get_saved_variables();
    const auto& input = saved[0];
    const auto& weight = saved[1];
    const bool may_overwrite = is_last_use(input);
    const auto kind = Activation(context->saved_data["kind"].toInt());
    const auto output_gradient = gradients[0].contiguous();
    ProjectionGradient projection(gradients[0],
                                  {saved[2], saved[3], context->saved_data["is_hybrid"].toBool()});
    const Dropout dropout{context->saved_data["dropout"].toDouble(), saved[4]};
    variable_list results(7);
    // First the gradient of the activated values, then the values themselves in its place.
    const auto activated = at::empty(sizes_of_width(input, weight.size(1)), input.options());
    if (context->needs_input_grad(0)) {
      projection.to_rows(as_matrix(activated), weight);
      const auto gradient =
          may_overwrite ? input.detach() : at::empty(input.sizes(), input.options());
      const auto largest = projection.is_in_fp8() ? make_largest(input) : at::Tensor();
      device_activate_gradient(gradient, activated, activated, input, kind, largest, dropout);
      results[0] = gradient;
      if (largest.defined()) note_largest(gradient, largest);
    } else if (context->needs_input_grad(1)) {
      device_activate(activated, input, kind, {}, dropout);
    }
    if (context->needs_input_grad(1)) {
      const auto& parameter = context->saved_data["weight"].toTensor();
      results[1] = projection.to_weights({parameter}, {true}, as_matrix(activated)).front();
    }
    if (context->needs_input_grad(2)) {
      results[2] = bias_gradient(context->saved_data["bias"].toTensor(), output_gradient);
    }
    if (context->needs_input_grad(3)) results[3] = gradients[0];
    return results;
  }
};

bool activates_on_device(const Projected& input, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& residual) {
  const auto& packed = input.packed;
  if (!packed.defined() || packed.numel() == 0) return false;
  if (!has_cuda_kernel({packed, weight, bias, residual}) || !weight.is_contiguous()) return false;
  const bool has_vector = !bias.defined() || (bias.dim() == 1 && bias.is_contiguous());
  return has_vector &&
         (!residual.defined() || residual.sizes() == sizes_of_width(packed, weight.size(0)));
}

// Whether the input is gate and up.
bool has_gate(const Projected& input, const at::Tensor& weight) {
  int64_t width = input.packed.defined() ? input.packed.size(-1) : 0;
  for (const auto& part : input.parts) width += part.size(-1);
  check(
      weight.dim() == 2 && (width == weight.size(1) || width == 2 * weight.size(1)),
      "activated_projection: the input has width {}, the weight takes {}; expected that, or twice "
      "that for gate and up",
      width, weight.size(-1));
  return width != weight.size(1);
}

at::Tensor composed_activation(const Projected& input, bool is_gated, Activation kind) {
  if (!is_gated) return activate(input.first(), kind);
  if (input.parts.size() == 2) return gated(input.parts[0], input.parts[1], kind);
  const auto halves = input.first().chunk(2, -1);
  return gated(halves[0], halves[1], kind);
}

}  // namespace

at::Tensor activated_projection(const Projected& input, Activation kind, const at::Tensor& weight,
                                const at::Tensor& bias, const at::Tensor& residual, ResultUse use,
                                double dropout) {
  const bool is_gated = has_gate(input, weight);
  if (activates_on_device(input, weight, bias, residual)) {
    return ActivatedProjectionFunction::apply(input.packed, weight, empty_if_absent(bias, weight),
                                              empty_if_absent(residual, weight),
                                              static_cast<int64_t>(kind), use, dropout);
  }
  const auto activated = dropped(composed_activation(input, is_gated, kind), dropout);
  return linear(activated, weight, bias, residual, use);
}

at::Tensor activated_projection(const Projected& input, Activation kind, const LinearTerms& layer,
                                const at::Tensor& residual, ResultUse use, double dropout) {
  if (layer.is_plain()) {
    return activated_projection(input, kind, layer.weight, layer.bias, residual, use, dropout);
  }
  const bool is_gated = has_gate(input, layer.weight);
  if (dropout == 0 && adapts_at_once(input.packed, {layer}, residual)) {
    return adapted_activated_projection(input.packed, kind, layer, residual, use);
  }
  return linear(dropped(composed_activation(input, is_gated, kind), dropout), layer, residual);
}

}  // namespace fullshard::ops
