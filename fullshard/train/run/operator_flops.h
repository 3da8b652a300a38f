// SPDX-License-Identifier: Apache-2.0
// The FLOPs of the operators that really run between begin() and end(), by unit and pass: products
// and attention on a CPU, where all of them are operators of libtorch. Kernels of our own on a GPU
// are not seen.
#pragma once

#include <memory>

#include "fullshard/train/run/flops_table.h"

namespace fullshard::train {

// One thread, which also runs the passes.
class OperatorFlops {
 public:
  OperatorFlops();
  ~OperatorFlops();
  OperatorFlops(const OperatorFlops&) = delete;
  OperatorFlops& operator=(const OperatorFlops&) = delete;

  void begin();
  void end();
  // Adds what was counted, divided by the number of micro-batches; a forward that runs again in a
  // backward is the backward's. What no unit ran is the root's.
  void add_to(FlopsProfile& profile) const;

 private:
  struct Counted;
  class Scope;
  std::shared_ptr<Counted> counted_;
  std::unique_ptr<Scope> scope_;  // while it counts
};

}  // namespace fullshard::train
