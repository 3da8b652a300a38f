// SPDX-License-Identifier: Apache-2.0
// The products of frozen layers that read the same rows, and of the adapters beside them, on a
// GPU, below autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fullshard/ops/products/linear_terms.h"

namespace fullshard::ops {

class AdaptedLayers {
 public:
  explicit AdaptedLayers(std::vector<LinearTerms> layers);

  const std::vector<LinearTerms>& layers() const { return layers_; }
  int64_t num_outputs() const { return num_outputs_; }
  bool has_adapters() const { return num_ranks_ > 0; }

  // In one dtype: those of 8 bits widened, one below the other.
  std::vector<at::Tensor> weights(at::ScalarType dtype) const;
  std::vector<at::Tensor> biases() const;

  // scale * rows * a^T of every adapter, side by side: the narrow rows [rows, sum of ranks].
  at::Tensor narrow_rows(const at::Tensor& rows) const;
  // Adds narrow * b^T to each layer's columns of the packed outputs.
  void add_to(const at::Tensor& packed, const at::Tensor& narrow) const;

  // Of rows * a^T, from that of the packed outputs: scale * gradient * b.
  at::Tensor narrow_gradient(const at::Tensor& packed_gradient) const;
  // Adds what the adapters contribute to the gradient of the rows.
  void add_rows_gradient(const at::Tensor& target, const at::Tensor& narrow_gradient) const;
  // Of every a and b, undefined where there is none, it is not wanted, or its gradient sink has it.
  // The parameters are those of the layers themselves (weight_gradient.h).
  using Parameters = std::vector<at::Tensor>;
  Parameters a_gradients(const Parameters& parameters, const at::Tensor& rows,
                         const at::Tensor& narrow_gradient) const;
  Parameters b_gradients(const Parameters& parameters, const at::Tensor& narrow,
                         const at::Tensor& packed_gradient) const;

 private:
  // Calls `use(number, first output, first rank)` for each layer with an adapter.
  template <class Use>
  void for_adapters(const Use& use) const;
  at::Tensor joined_a() const;
  void multiply_scales(const at::Tensor& narrow) const;

  std::vector<LinearTerms> layers_;
  int64_t num_outputs_ = 0, num_ranks_ = 0;
};

}  // namespace fullshard::ops
