// SPDX-License-Identifier: Apache-2.0
// The two kernels of a decoding step on a GPU, one token per row of bf16 or fp32. They write into
// tensors that are given, on the current stream, and read nothing on the host, so that a step can
// be captured as a graph. A build without CUDA has neither.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "fullshard/ops/activation.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/rotary.h"

namespace fullshard::ops {

// Weights [outputs, width] that the same few rows are multiplied with; biases may be undefined.
struct FewRowsOperands {
  std::vector<at::Tensor> weights, biases;
  const NormTerms* norm = nullptr;  // of the rows, before
  // Of the results; with two weights the second's are multiplied with it.
  std::optional<Activation> activation = std::nullopt;

  bool is_gated() const { return activation && weights.size() == 2; }
  int64_t num_outputs() const;  // of a row
};

// Whether rows are few, and of a kind that the kernel has code for; gradients are off.
bool has_device_few_rows(const at::Tensor& input);
// And whether the rest is: of one type, on one GPU, contiguous, beginning where it can be read 16
// bytes at a time.
bool has_device_few_rows(const at::Tensor& input, const FewRowsOperands& operands,
                         const at::Tensor& residual);
// output [..., all outputs] = norm(input [..., width]) * weights + biases + residual, activated;
// the residual may be undefined.
void device_few_rows(const at::Tensor& output, const at::Tensor& input,
                     const FewRowsOperands& operands, const at::Tensor& residual);

// Attention of one new token per row: rows [rows, 1, query | key | value], keys and values [rows,
// kv_heads, capacity, D], which get the new ones, and positions int64 [rows, 1].
struct StepAttention {
  at::Tensor rows, keys, values, positions;
  const RotaryTable* rotary = nullptr;
  int64_t num_heads = 0;
  int64_t window = 0;
  double scale = 1;
};

bool has_device_step_attention(const StepAttention& step);
// output [rows, 1, heads * D].
void device_step_attention(const at::Tensor& output, const StepAttention& step);

}  // namespace fullshard::ops
