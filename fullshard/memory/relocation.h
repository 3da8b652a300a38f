// SPDX-License-Identifier: Apache-2.0
// Moves what lies in the memory of one pool to that of another, values and ledger with it. Whoever
// owns a block is asked to have it moved, and makes its views anew.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/memory/pool.h"

namespace fullshard::memory {

// Looks at its pools. One thread; every move is over when it returns.
class Relocation {
 public:
  Relocation(Pool& from, Pool& to) : from_(from), to_(to) {}

  // Only if it is of the first pool; nothing for one that is empty.
  void move(Block& block) const;
  // A tensor that somebody entered in the ledger himself, under that purpose; undefined: nothing.
  void move(at::Tensor& tensor, tiers::Purpose purpose) const;

 private:
  Pool& from_;
  Pool& to_;
};

}  // namespace fullshard::memory
