// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit numbers on a GPU, below autograd, on the current stream. Each matrix has one
// factor, from the largest magnitude of what it holds now. A build without CUDA can only plan them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fullshard::ops {

// Whether the layers of the running unit are asked for it, and the GPU can: rows of bf16 with
// weights [N, K], all sizes of weights multiples of 16.
bool computes_in_fp8(const at::Tensor& rows, at::TensorList weights);

// Values and weights need bits, gradients reach.
enum class Fp8Format { e4m3, e5m2 };

// [rows, inner], dense in the dimension that a product adds over.
struct Fp8Operand {
  at::Tensor values;
  at::Tensor factor;  // fp32 [1]: times it the values are the old ones, but for rounding

  Fp8Operand narrow(int64_t first, int64_t count) const {
    return {values.narrow(0, first, count), factor};
  }
};

// Of all of them together: fp32 numbers, the largest of which it is. Contiguous matrices of bf16.
at::Tensor device_largest(at::TensorList matrices);

// Room for it, for a kernel that finds it on the way (device_operators.h).
at::Tensor make_largest(const at::Tensor& like);

// A gradient and its largest magnitude, on the way from one operator's backward to the next one's.
void note_largest(const at::Tensor& gradient, const at::Tensor& largest);
// Undefined when this is not the gradient that was noted last on this thread, or it has changed.
at::Tensor noted_largest(const at::Tensor& gradient);

// Both orientations of one matrix [R, C] where both are wanted: reading it is most of the work.
struct Fp8Both {
  Fp8Operand rows;    // [R, C]
  Fp8Operand turned;  // [C, R], R up to a multiple of 16 with zeros
};
Fp8Operand device_fp8_rows(const at::Tensor& matrix, const at::Tensor& largest, Fp8Format format);
Fp8Operand device_fp8_turned(const at::Tensor& matrix, const at::Tensor& largest, Fp8Format format);
Fp8Both device_fp8_both(const at::Tensor& matrix, const at::Tensor& largest, Fp8Format format);

// Weights [N, K] of layers that read the same rows, one below the other: [sum of N, K], or turned
// [K, sum of N].
Fp8Operand device_fp8_joined_rows(at::TensorList weights, const at::Tensor& largest);
Fp8Operand device_fp8_joined_turned(at::TensorList weights, const at::Tensor& largest);

// output [M, N] (bf16 or fp32) = left [M, K] * right [N, K]^T + bias + addend, or added to what it
// holds. bf16 bias [N] and addend [M, N] may be undefined. `sums_fast`: the tensor cores add with
// fewer bits, which all but the sums over thousands of tokens can afford.
struct Fp8ProductTerms {
  at::Tensor bias = {};
  at::Tensor addend = {};
  bool accumulate = false;
  bool sums_fast = false;
};
void device_fp8_product(const at::Tensor& output, const Fp8Operand& left, const Fp8Operand& right,
                        const Fp8ProductTerms& terms = {});

}  // namespace fullshard::ops
