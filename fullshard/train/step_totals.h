// What the ranks tell each other after a step, in one message: a row of numbers each, of which sums
// and largest values are wanted.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string_view>

#include "fullshard/comm/communicator.h"

namespace fullshard {

class StepTotals {
 public:
  // Collective; all ranks give equally many.
  StepTotals(const Communicator& everyone, std::initializer_list<double> own,
             std::string_view what);

  double sum(int64_t place) const;  // over ascending ranks, however they lie on hosts
  double largest(int64_t place) const;

 private:
  at::Tensor rows_;  // [ranks][numbers]
};

}  // namespace fullshard
