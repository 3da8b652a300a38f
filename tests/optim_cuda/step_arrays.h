// SPDX-License-Identifier: Apache-2.0
// The same arrays for the CPU's loops and for the GPU's kernels, stepped by both and compared bit
// by bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "fullshard/optim/cuda/device_step.h"
#include "fullshard/optim/kernels/piece_elements.h"

namespace fullshard::testing {

struct StepDtypes {
  at::ScalarType master = at::kFloat;
  at::ScalarType gradient = at::kFloat;
  at::ScalarType state = at::kFloat;
  at::ScalarType shown = at::kBFloat16;  // Undefined: none
  int num_states = 2;
  bool first_is_square = false;  // the second one always is: roots are taken of them
};

// One tensor's arrays.
struct StepArrays {
  at::Tensor master, gradient, shown;
  at::Tensor lower;  // defined: masters are in halves, and `shown` has the other one
  std::vector<at::Tensor> states;
  int setting = 0;
  int tensor = 0;
  int64_t first = 0;  // of the tensor's elements

  // Every array begins `shift` elements after an aligned address.
  static StepArrays random(int64_t numel, const StepDtypes& dtypes, uint64_t seed, int shift = 0);
  StepArrays copied_to(at::Device device, int shift = 0) const;
  void halve();  // master into shown and lower
  void join();   // and back
  uint64_t name_hash() const;
  optim::PieceElements elements(uint64_t rounding) const;  // for the CPU
  optim::DevicePiece piece() const;                        // for the GPU
};

// Sizes from 1 to 10 million, around the borders of vectors and chunks.
std::vector<int64_t> awkward_sizes();

std::vector<optim::DevicePiece> pieces_of(const std::vector<StepArrays>& arrays);
std::vector<StepArrays> copies_on(at::Device device, const std::vector<StepArrays>& arrays,
                                  int shift = 0);

// All bits, also those of NaN; says how many differ and shows the first.
void expect_same_bits(const std::vector<StepArrays>& cuda, const std::vector<StepArrays>& cpu,
                      const std::string& what);

}  // namespace fullshard::testing
