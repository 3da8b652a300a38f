// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/decoding/device_decoding.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "fullshard/ops/alignment.h"
#include "fullshard/ops/cuda/few_rows_products.h"
#include "fullshard/ops/cuda/step_attention_rows.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::ops {
namespace {

using tensor::KernelLaunch;
using tensor::launch_kernel;

bool is_dense(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == dtype && tensor.is_contiguous() && begins_at_pack(tensor);
}

// What a step's kernels have code for.
bool is_dense_of_step(const at::Tensor& tensor) {
  return is_dense(tensor, at::kBFloat16) || is_dense(tensor, at::kFloat);
}

bool is_wide(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat; }

FewRowsNorm norm_of(const KernelLaunch& launch, const FewRowsOperands& operands) {
  const NormTerms* norm = operands.norm;
  if (norm == nullptr) return {};
  return {.weight = launch.read(norm->weight),
          .bias = launch.read(norm->bias),
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
  if (!has_cuda_kernel({input}) || at::GradMode::is_enabled() || !is_dense_of_step(input)) {
    return false;
  }
  const int64_t num_rows = num_rows_of(input);
  return num_rows > 0 && num_rows <= kMostRowsOfProducts;
}

bool has_device_few_rows(const at::Tensor& input, const FewRowsOperands& operands,
                         const at::Tensor& residual) {
  if (!has_device_few_rows(input) || input.size(-1) % kProductStep != 0) return false;
  if (operands.weights.empty() || operands.weights.size() > kMostWeights) return false;
  const auto is_weight = [&](const at::Tensor& weight) {
    return has_cuda_kernel({input, weight}) && weight.dim() == 2 &&
           is_dense(weight, input.scalar_type()) && weight.size(1) == input.size(-1) &&
           weight.size(0) > 0;
  };
  const auto is_absent_or_dense = [&](const at::Tensor& tensor) {
    return !tensor.defined() ||
           (has_cuda_kernel({input, tensor}) && is_dense(tensor, input.scalar_type()));
  };
  return std::ranges::all_of(operands.weights, is_weight) &&
         std::ranges::all_of(operands.biases, is_absent_or_dense) && is_absent_or_dense(residual) &&
         (!residual.defined() || residual.numel() == num_rows_of(input) * operands.num_outputs()) &&
         (operands.norm == nullptr ||
          (is_absent_or_dense(operands.norm->weight) && is_absent_or_dense(operands.norm->bias))) &&
         (!operands.is_gated() || operands.weights[0].size(0) == operands.weights[1].size(0));
}

namespace {

FewRowsProducts products_of(const KernelLaunch& launch, const at::Tensor& output,
                            const at::Tensor& input, const FewRowsOperands& operands,
                            const at::Tensor& residual) {
  FewRowsProducts products{.output = launch.write(output),
                           .input = launch.read(input),
                           .residual = launch.read(residual),
                           .norm = norm_of(launch, operands),
                           .activation = activation_of(operands),
                           .num_rows = num_rows_of(input),
                           .width = input.size(-1),
                           .num_weights = static_cast<int>(operands.weights.size()),
                           .weights = {}};
  for (size_t i = 0; i < operands.weights.size(); ++i) {
    products.weights[i] = {launch.read(operands.weights[i]), launch.read(operands.biases[i]),
                           operands.weights[i].size(0)};
  }
  return products;
}

at::Tensor normed_before(const at::Tensor& input, const FewRowsOperands& operands) {
  if (is_wide(input)) return apply_norm(input, *operands.norm);
  const auto normed = at::empty_like(input);
  launch_kernel("norm_few_rows", input.device(), {normed, input}, [&](const KernelLaunch& launch) {
    norm_few_rows(launch.write(normed), products_of(launch, normed, input, operands, {}),
                  launch.stream());
  });
  return normed;
}

int64_t weight_bytes(const FewRowsOperands& operands) {
  int64_t bytes = 0;
  for (const auto& weight : operands.weights) bytes += tensor::touched_bytes(weight);
  return bytes;
}

}  // namespace

void device_few_rows(const at::Tensor& output, const at::Tensor& input,
                     const FewRowsOperands& operands, const at::Tensor& residual) {
  const bool norms_before =
      operands.norm != nullptr &&
      (is_wide(input) || !norms_few_rows_on_the_way(num_rows_of(input), input.size(-1)));
  const auto normed = norms_before ? normed_before(input, operands) : at::Tensor();
  const int64_t bytes = tensor::touched_bytes(output) + tensor::touched_bytes(input) +
                        (residual.defined() ? tensor::touched_bytes(residual) : 0) +
                        weight_bytes(operands);
  launch_kernel("few_rows", input.device(), bytes, [&](const KernelLaunch& launch) {
    auto products = products_of(launch, output, input, operands, residual);
    if (norms_before) {
      products.input = launch.read(normed);
      products.norm = {};
    }
    if (is_wide(input)) {
      multiply_few_wide_rows(products, launch.stream());
    } else {
      multiply_few_rows(products, launch.stream());
    }
  });
}

bool has_device_step_attention(const StepAttention& step) {
  if (!has_cuda_kernel({step.rows, step.keys, step.values}) || at::GradMode::is_enabled()) {
    return false;
  }
  const int64_t width = step.keys.size(3), num_kv_heads = step.keys.size(1);
  const bool has_width = width == 32 || width == 64 || width == 128 || width == 256;
  const auto dtype = step.rows.scalar_type();
  return has_width && is_dense_of_step(step.rows) && is_dense(step.keys, dtype) &&
         is_dense(step.values, dtype) && step.positions.is_cuda() &&
         step.positions.is_contiguous() &&
         step.rows.size(-1) == (step.num_heads + 2 * num_kv_heads) * width &&
         (step.rotary == nullptr || step.rotary->cos.size(1) == width / 2);
}

void device_step_attention(const at::Tensor& output, const StepAttention& step) {
  launch_kernel("step_attention", step.rows.device(), {output, step.rows, step.keys, step.values},
                [&](const KernelLaunch& launch) {
                  const RotaryTable* table = step.rotary;
                  attend_step(
                      {.output = launch.write(output),
                       .rows = launch.read(step.rows),
                       .keys = launch.write(step.keys),
                       .values = launch.write(step.values),
                       .positions = launch.read_as<int64_t>(step.positions),
                       .cosines = table == nullptr ? nullptr : launch.read_as<float>(table->cos),
                       .sines = table == nullptr ? nullptr : launch.read_as<float>(table->sin),
                       .num_positions = table == nullptr ? 0 : table->cos.size(0),
                       .num_rows = step.rows.size(0),
                       .num_heads = step.num_heads,
                       .num_kv_heads = step.keys.size(1),
                       .width = step.keys.size(3),
                       .capacity = step.keys.size(2),
                       .window = step.window,
                       .scale = static_cast<float>(step.scale)},
                      is_wide(step.rows) ? KernelDtype::fp32 : KernelDtype::bf16, launch.stream());
                });
}

}  // namespace fullshard::ops
