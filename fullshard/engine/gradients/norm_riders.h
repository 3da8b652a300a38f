// SPDX-License-Identifier: Apache-2.0
// Numbers that each rank tells all others with the message of the gradient norm, so that they need
// none of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace fullshard::engine {

class NormRiders {
 public:
  // All ranks give equally many.
  explicit NormRiders(std::vector<double> own) : own_(std::move(own)) {}

  const std::vector<double>& own() const { return own_; }
  // False after a norm that made no message between all ranks in host memory: where a host or a
  // rank has a whole copy of the gradients, or they are on a GPU.
  bool have_arrived() const { return rows_.defined(); }
  const at::Tensor& rows() const { return rows_; }  // fp64 [ranks][numbers]

  void arrive(at::Tensor rows) { rows_ = std::move(rows); }

 private:
  std::vector<double> own_;
  at::Tensor rows_;
};

}  // namespace fullshard::engine
