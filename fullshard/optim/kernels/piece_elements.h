// SPDX-License-Identifier: Apache-2.0
// A piece of a parameter as the loops of optimizers see it: addresses and dtypes.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

#include "fullshard/optim/kernels/stochastic_rounding.h"

namespace fullshard::optim {

constexpr int kMaxStates = 2;

// A place in memory with elements of some floating-point dtype; null when there is none.
struct Elements {
  void* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;

  explicit operator bool() const { return data != nullptr; }
  Elements from(int64_t first) const;
};

// One piece as it lies in memory.
struct PieceElements {
  Elements master;
  Elements gradient;  // none: the rule does not read it
  Elements shown;     // none: nobody looks at a cast
  // Lower halves of a master whose nearest ones are `shown`, instead of `master`
  // (base/float_halves); none: it is whole.
  uint16_t* lower = nullptr;
  std::array<Elements, kMaxStates> states;
  int64_t numel = 0;
  int64_t first = 0;  // index of the first element in its tensor
  RoundingKey rounding;
  bool writes_master = true;
};

}  // namespace fullshard::optim
