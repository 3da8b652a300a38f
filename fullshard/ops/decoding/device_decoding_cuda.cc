// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "fullshard/ops/cuda/few_rows_products.h"
#include "fullshard/ops/cuda/step_attention_rows.h"
#include "fullshard/ops/decoding/device_decoding.h"
#include "fullshard/ops/device_operators.h"

namespace fullshard::ops {
namespace {

bool is_dense_bf16(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 && tensor.is_contiguous() &&
         reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

int64_t num_rows_of_matrix(const at::Tensor& input) {
  return input.size(-1) == 0 ? 0 : input.numel() / input.size(-1);
}

const void* data_if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

FewRowsNorm norm_of(const FewRowsOperands& operands) {
  const NormTerms* norm = operands.norm;
  if (norm == nullptr) return {};
  return {.weight = norm->weight.const_data_ptr(),
          .bias = data_if_defined(norm->bias),
          .epsilon = static_cast<float>(norm->epsilon),
          .centred = norm->centred};
}

FewRowsActivation activation_of(const FewRowsOperands& operands) {
  if (!operands.activation) return {};
  return {.is_wanted = true,
          .is_gated = operands.is_gated(),
          .kind = static_cast<RowActivation>(*operands.activation)};
}

}  // namespace

bool has_device_few_rows(const at::Tensor& input) {
  if (!has_cuda_kernel({input}) || at::GradMode::is_enabled() || !is_dense_bf16(input))
    return false;
  const int64_t num_rows = num_rows_of_matrix(input);
  return num_rows > 0 && num_rows <= kMostRowsOfProducts;
}

bool has_device_few_rows(const at::Tensor& input, const FewRowsOperands& operands,
                         const at::Tensor& residual) {
  if (!has_device_few_rows(input) || input.size(-1) % kProductStep != 0) return false;
  if (operands.weights.empty() || operands.weights.size() > kMostWeights) return false;
  const auto is_weight = [&](const at::Tensor& weight) {
    return has_cuda_kernel({input, weight}) && weight.dim() == 2 && is_dense_bf16(weight) &&
           weight.size(1) == input.size(-1) && weight.size(0) > 0;
  };
  const auto is_absent_or_dense = [&](const at::Tensor& tensor) {
    return !tensor.defined() || (has_cuda_kernel({input, tensor}) && is_dense_bf16(tensor));
  };
  return std::ranges::all_of(operands.weights, is_weight) &&
         std::ranges::all_of(operands.biases, is_absent_or_dense) && is_absent_or_dense(residual) &&
         (!residual.defined() ||
          residual.numel() == num_rows_of_matrix(input) * operands.num_outputs()) &&
         (operands.norm == nullptr ||
          (is_absent_or_dense(operands.norm->weight) && is_absent_or_dense(operands.norm->bias))) &&
         (!operands.is_gated() || operands.weights[0].size(0) == operands.weights[1].size(0));
}

void device_few_rows(const at::Tensor& output, const at::Tensor& input,
                     const FewRowsOperands& operands, const at::Tensor& residual) {
  const c10::cuda::CUDAGuard on_device(input.device());
  FewRowsProducts products{.output = output.mutable_data_ptr(),
                           .input = input.const_data_ptr(),
                           .residual = data_if_defined(residual),
                           .norm = norm_of(operands),
                           .activation = activation_of(operands),
                           .num_rows = num_rows_of_matrix(input),
                           .width = input.size(-1),
                           .num_weights = static_cast<int>(operands.weights.size()),
                           .weights = {}};
  for (size_t i = 0; i < operands.weights.size(); ++i) {
    products.weights[i] = {operands.weights[i].const_data_ptr(),
                           data_if_defined(operands.biases[i]), operands.weights[i].size(0)};
  }
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  at::Tensor normed;
  if (operands.norm != nullptr && !norms_few_rows_on_the_way(products.num_rows, products.width)) {
    normed = at::empty_like(input);
    norm_few_rows(normed.mutable_data_ptr(), products, stream);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    products.input = normed.const_data_ptr();
    products.norm = {};
  }
  multiply_few_rows(products, stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

bool has_device_step_attention(const StepAttention& step) {
  if (!has_cuda_kernel({step.rows, step.keys, step.values}) || at::GradMode::is_enabled()) {
    return false;
  }
  const int64_t width = step.keys.size(3), num_kv_heads = step.keys.size(1);
  const bool has_width = width == 32 || width == 64 || width == 128 || width == 256;
  return has_width && is_dense_bf16(step.rows) && is_dense_bf16(step.keys) &&
         is_dense_bf16(step.values) && step.positions.is_cuda() && step.positions.is_contiguous() &&
         step.rows.size(-1) == (step.num_heads + 2 * num_kv_heads) * width &&
         (step.rotary == nullptr || step.rotary->cos.size(1) == width / 2);
}

void device_step_attention(const at::Tensor& output, const StepAttention& step) {
  const c10::cuda::CUDAGuard on_device(step.rows.device());
  const RotaryTable* table = step.rotary;
  attend_step({.output = output.mutable_data_ptr(),
               .rows = step.rows.const_data_ptr(),
               .keys = step.keys.mutable_data_ptr(),
               .values = step.values.mutable_data_ptr(),
               .positions = step.positions.const_data_ptr<int64_t>(),
               .cosines = table == nullptr ? nullptr : table->cos.const_data_ptr<float>(),
               .sines = table == nullptr ? nullptr : table->sin.const_data_ptr<float>(),
               .num_rows = step.rows.size(0),
               .num_heads = step.num_heads,
               .num_kv_heads = step.keys.size(1),
               .width = step.keys.size(3),
               .capacity = step.keys.size(2),
               .window = step.window,
               .scale = static_cast<float>(step.scale)},
              c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace fullshard::ops
