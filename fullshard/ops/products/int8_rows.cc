// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/int8_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fullshard/base/error.h"
#include "fullshard/ops/absent_tensor.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/kernels/matrix.h"

namespace fullshard::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kLargest = 127;

// Input, values, scales and bias; the last may be empty: absent.
struct Int8LinearFunction : torch::autograd::Function<Int8LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& values, const at::Tensor& scales,
                            const at::Tensor& given_bias) {
    const auto bias = undefined_if_empty(given_bias);
    context->save_for_backward({values, scales});
    return at::linear(input, widened_rows(values, scales, input.scalar_type()), bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative("int8_linear");
    const auto saved = context->get_saved_variables();
    variable_list results(4);
    if (context->needs_input_grad(0)) {
      const auto weight = widened_rows(saved[0], saved[1], gradients[0].scalar_type());
      results[0] = gradients[0].matmul(weight);
    }
    if (context->needs_input_grad(3)) results[3] = as_matrix(gradients[0]).sum(0);
    return results;
  }
};

}  // namespace

at::Tensor int8_scales(const at::Tensor& matrix) {
  check(matrix.dim() == 2, "int8: a tensor of {} dimensions, expected a matrix", matrix.dim());
  const auto wide = matrix.to(at::kFloat);
  if (wide.numel() == 0) return at::ones({wide.size(0)}, wide.options());
  const auto largest = wide.abs().amax(1);
  check(largest.isfinite().all().item<bool>(),
        "int8: the weight has values that are infinite or NaN, which 8 bits cannot hold");
  return at::where(largest > 0, largest / kLargest, 1.0).to(at::kFloat);
}

Int8Rows int8_rows(const at::Tensor& matrix) {
  const auto scales = int8_scales(matrix);
  const auto wide = matrix.to(at::kFloat);
  return {(wide / scales.unsqueeze(1)).round().clamp(-kLargest, kLargest).to(at::kChar), scales};
}

void widen_rows_into(at::Tensor wide, const at::Tensor& values, const at::Tensor& scales) {
  const bool has_rows = wide.is_contiguous() && values.is_contiguous() && scales.is_contiguous();
  if (has_rows && has_cuda_kernel(wide)) return device_widen_rows(wide, values, scales);
  at::mul_out(wide, values, scales.unsqueeze(1));
}

at::Tensor widened_rows(const at::Tensor& values, const at::Tensor& scales, at::ScalarType dtype) {
  auto wide = at::empty(values.sizes(), scales.options().dtype(dtype));
  widen_rows_into(wide, values, scales);
  return wide;
}

at::Tensor int8_linear(const at::Tensor& input, const at::Tensor& values, const at::Tensor& scales,
                       const at::Tensor& bias, const at::Tensor& residual) {
  const auto output =
      Int8LinearFunction::apply(input, values, scales, empty_if_absent(bias, input));
  return residual.defined() ? residual + output : output;
}

}  // namespace fullshard::ops
