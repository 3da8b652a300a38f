// SPDX-License-Identifier: Apache-2.0
// What the ranks tell each other of a step, in one message or with that of the gradient norm: a row
// of numbers each, of which sums and largest values are wanted.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <utility>
#include <vector>

#include "fullshard/comm/communicator.h"

namespace fullshard::train {

class StepTotals {
 public:
  // Collective; all ranks give equally many.
  StepTotals(const Communicator& everyone, const std::vector<double>& own, std::string_view what);
  // Of rows that have come already, fp64 [ranks][numbers].
  explicit StepTotals(at::Tensor rows) : rows_(std::move(rows)) {}

  double sum(int64_t place) const;  // over ascending ranks, however they lie on hosts
  double largest(int64_t place) const;

 private:
  at::Tensor rows_;  // [ranks][numbers]
};

}  // namespace fullshard::train
