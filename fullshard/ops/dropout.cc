// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/dropout.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fullshard/base/error.h"
#include "fullshard/ops/absent_tensor.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"

namespace fullshard::ops {

Dropout Dropout::make(double probability, const at::Tensor& like) {
  if (probability == 0) return {};
  return {probability, at::empty({2}, like.options().dtype(at::kLong)), /*draws=*/true};
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct DroppedFunction : torch::autograd::Function<DroppedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values,
                            const at::Tensor& given_residual, double probability) {
    const auto residual = undefined_if_empty(given_residual);
    auto output = at::empty(values.sizes(), values.options());
    const auto dropout = Dropout::make(probability, values);
    device_drop(output, values.contiguous(), residual.defined() ? residual.contiguous() : residual,
                dropout);
    context->save_for_backward({dropout.drawn});
    context->saved_data["probability"] = probability;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative("dropout");
    variable_list results(3);
    if (context->needs_input_grad(0)) {
      const auto output_gradient = gradients[0].contiguous();
      results[0] = at::empty(output_gradient.sizes(), output_gradient.options());
      const Dropout dropout{context->saved_data["probability"].toDouble(),
                            context->get_saved_variables()[0]};
      device_drop(results[0], output_gradient, {}, dropout);
    }
    if (context->needs_input_grad(1)) results[1] = gradients[0];
    return results;
  }
};

}  // namespace

at::Tensor dropped(const at::Tensor& values, double probability, const at::Tensor& residual) {
  check(probability >= 0 && probability <= 1, "dropout: the probability is {}; expected 0 to 1",
        probability);
  check(!residual.defined() || residual.sizes() == values.sizes(),
        "dropout: the values have {} elements in {} dimensions, the residual {} in {}; expected "
        "the same sizes",
        values.numel(), values.dim(), residual.defined() ? residual.numel() : 0,
        residual.defined() ? residual.dim() : 0);
  if (probability == 0) return residual.defined() ? residual + values : values;
  if (values.numel() > 0 && probability < 1 && has_cuda_kernel({values, residual})) {
    return DroppedFunction::apply(values, empty_if_absent(residual, values), probability);
  }
  const auto kept = at::dropout(values, probability, /*train=*/true);
  return residual.defined() ? residual + kept : kept;
}

}  // namespace fullshard::ops
