// SPDX-License-Identifier: Apache-2.0
// Operators on tensors of a GPU, below autograd: they write into tensors that are given, on the
// current stream. A build without CUDA has none of them: has_cuda_kernel is false there, and a call
// is an error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

#include "fullshard/ops/activation.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/rotary.h"

namespace fullshard::ops {

// fp32 or bf16 on a GPU.
bool has_cuda_kernel(const at::Tensor& tensor);
// All of one dtype on one GPU, autocast off; undefined ones are passed over.
bool has_cuda_kernel(std::initializer_list<at::Tensor> tensors);

// A result of a parameter's shape in fp32, written or added to.
struct WideTarget {
  at::Tensor values = {};  // fp32, contiguous; undefined: not wanted
  bool accumulate = false;
};

// output [M, N] = left [M, K] * right [K, N], or added to what it holds. Of each operand one
// dimension is dense. The output has their dtype, or fp32 under operands of bf16.
void device_product(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
                    bool accumulate = false);
// output = left * right + bias + addend in one pass; bias [N] and addend [M, N] of the output's
// dtype, each undefined or not.
void device_product_plus(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
                         const at::Tensor& bias, const at::Tensor& addend);

// Over the rows of a matrix whose last dimension is dense.
void device_column_sums(const WideTarget& target, const at::Tensor& matrix);

// What a norm leaves of every row for its backward; `mean` only where it is taken away.
struct NormStatistics {
  at::Tensor mean, inverse;
};
// Contiguous tensors throughout. Where `largest` is defined (device_fp8.h), it gets the largest
// magnitude of what is written, here and below.
NormStatistics device_norm(const at::Tensor& output, const at::Tensor& input,
                           const NormTerms& terms, const at::Tensor& largest = {});
void device_norm_again(const at::Tensor& output, const at::Tensor& input, const NormTerms& terms,
                       const NormStatistics& statistics);

struct NormGradientTargets {
  at::Tensor input;  // may be the output's gradient itself
  WideTarget weight, bias;
  at::Tensor largest = {};  // of `input`
};
// `added` (may be undefined) comes on top of the input's gradient.
void device_norm_gradient(const NormGradientTargets& targets, const at::Tensor& output_gradient,
                          const at::Tensor& added, const at::Tensor& input, const NormTerms& terms,
                          const NormStatistics& statistics);

// Which elements are dropped: a function of two numbers and an element's place, so that backward
// need not keep a mask.
struct Dropout {
  double probability = 0;
  at::Tensor drawn = {};  // the two numbers, int64 [2]; undefined where nothing is dropped
  bool draws = false;     // anew, by the device's generator; else by those that are there

  static Dropout make(double probability, const at::Tensor& like);
};

// The results [rows, width] of inputs [rows, width], or of gate | up [rows, 2 * width] in one.
void device_activate(const at::Tensor& output, const at::Tensor& input, Activation kind,
                     const at::Tensor& largest = {}, const Dropout& dropout = {});
// `input_gradient` as input; `output` (may be undefined, or output_gradient itself) gets the
// results once more. `largest`: of input_gradient. `dropout`: of the results, as forward had it.
void device_activate_gradient(const at::Tensor& input_gradient, const at::Tensor& output,
                              const at::Tensor& output_gradient, const at::Tensor& input,
                              Activation kind, const at::Tensor& largest = {},
                              const Dropout& dropout = {});

// Contiguous tensors: output = residual (may be undefined) + what stays of values.
void device_drop(const at::Tensor& output, const at::Tensor& values, const at::Tensor& residual,
                 const Dropout& dropout);

// Turns the first heads of contiguous rows [batch, sequence, width] in place. `positions`: int64
// [batch, sequence], or undefined.
void device_rotate(const at::Tensor& rows, int64_t num_turned, const RotaryTable& table,
                   const at::Tensor& positions, float sign);
// Gradients [batch, sequence, heads, D], contiguous, into rows query | key | value; the first two
// are turned back when there is a table.
void device_pack_heads(const at::Tensor& rows, const at::Tensor& query, const at::Tensor& key,
                       const at::Tensor& value, const RotaryTable* table,
                       const at::Tensor& positions);

// Losses [rows] of logits [rows, vocabulary], whose rows may lie apart; logits become their
// gradient when that is wanted.
void device_entropy(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& labels,
                    int64_t ignore_index, double smoothing, bool wants_gradient);

// output [rows, width] = integers of 8 bits, each row times its factor (fp32 [rows]); contiguous.
void device_widen_rows(const at::Tensor& output, const at::Tensor& values,
                       const at::Tensor& scales);

// Adds row i into table[indices[i]]; the table is fp32. The same bits on every run.
void device_add_rows(const at::Tensor& table, const at::Tensor& indices, const at::Tensor& rows,
                     int64_t skipped);

}  // namespace fullshard::ops
