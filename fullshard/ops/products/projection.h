// SPDX-License-Identifier: Apache-2.0
// The three products of linear layers that read the same rows, on a GPU, below autograd: in the
// operands' dtype, or in fp8 where the running unit is asked for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "fullshard/ops/products/device_fp8.h"

namespace fullshard::ops {

// What a forward in fp8 leaves for its backward, which rounds the same values again with the same
// factors; undefined tensors: it was none.
struct Fp8Maxima {
  at::Tensor rows = {};
  at::Tensor weights = {};
  bool is_hybrid = false;  // gradients in e5m2
};

// packed [M, sum of N] = rows [M, K] * each weight [N, K]^T, side by side, each with its bias (may
// be undefined); `addend` (may be undefined) comes on top. `largest` of the rows, where it is known
// (make_largest_for).
Fp8Maxima project(const at::Tensor& packed, const at::Tensor& rows, at::TensorList weights,
                  at::TensorList biases, const at::Tensor& addend = {},
                  const at::Tensor& largest = {});
// The same with forward in the operands' dtype: only backward is in fp8.
Fp8Maxima project_wide(const at::Tensor& packed, const at::Tensor& rows, at::TensorList weights,
                       at::TensorList biases, const at::Tensor& addend = {},
                       const at::Tensor& largest = {});
// What both would leave, without the product.
Fp8Maxima maxima_of(const at::Tensor& rows, at::TensorList weights, const at::Tensor& largest = {});
// Whether the rows of this weight are a gate times what it lets through, made from both of them:
// they take project_wide. A few values are large there, and the one factor comes from them; where
// it was measured, losses came nearest to bf16's without these in 8 bits (bench/results/fp8.md).
bool is_product_of_gate(const at::Tensor& input, const at::Tensor& weight);
// Where the kernel that makes the rows is to leave their largest magnitude; undefined when nobody
// wants it. `like` is of their dtype and device.
at::Tensor make_largest_for(const at::Tensor& like, at::TensorList weights);

// The other two products, from the gradient of `packed`.
class ProjectionGradient {
 public:
  // As autograd handed it over, of any dimensions.
  ProjectionGradient(const at::Tensor& gradient, Fp8Maxima maxima);

  const at::Tensor& matrix() const { return gradient_; }
  bool is_in_fp8() const { return maxima_.rows.defined(); }

  // The gradient of the rows; `addend` (may be undefined, or the target itself) comes on top.
  void to_rows(const at::Tensor& target, at::TensorList weights, const at::Tensor& addend = {});
  // Of each weight that is wanted, by its parameter, which may have a gradient sink; then what is
  // returned for it is undefined.
  std::vector<at::Tensor> to_weights(const std::vector<at::Tensor>& parameters,
                                     const std::vector<bool>& is_wanted, const at::Tensor& rows);

 private:
  const Fp8Both& in_fp8();

  at::Tensor gradient_;  // [M, sum of N], contiguous
  at::Tensor largest_;   // of it, where the operator before knew
  Fp8Maxima maxima_;
  std::optional<Fp8Both> in_fp8_;
};

}  // namespace fullshard::ops
