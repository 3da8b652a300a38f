// SPDX-License-Identifier: Apache-2.0
// The loops of OneBitAdam. A sign is one bit, 1 for everything that is not negative, so that zero
// counts as positive; eight of them make a byte, the first one lowest.
#pragma once

#include <cstdint>
#include <span>

#include "fullshard/optim/kernels/piece_elements.h"

namespace fullshard::optim {

constexpr int64_t kSignsPerByte = 8;

struct MomentumStep {
  double clip = 1;  // the gradient is multiplied with it
  double beta1 = 0;
};

// exp_avg ← beta1 · exp_avg + (1 - beta1) · gradient. State: exp_avg.
void momentum_step(const MomentumStep& step, const PieceElements& piece);

// error ← error + (beta1 · exp_avg + (1 - beta1) · gradient); exp_avg stays. Returns the sum of the
// squares of what is now there, in fp64. The same bits for every number of threads.
double add_momentum(const MomentumStep& step, const Elements& gradient, const Elements& exp_avg,
                    float* error, int64_t numel);
double sum_of_error_squares(const float* values, int64_t numel);

// What several ranks sent for the same elements.
struct SignedRow {
  const uint8_t* signs = nullptr;
  float scale = 0;
};

// error ← error + Σ ± scale, rows added in their order first; returns the sum of the squares.
double add_signed_rows(std::span<const SignedRow> rows, float* error, int64_t numel);

// Writes the signs of the values and takes ± scale from each: what is left is the error. numel is a
// multiple of 8.
void take_signs(uint8_t* signs, float scale, float* values, int64_t numel);

// values ← ± scale.
void spread_signs(const Elements& values, const SignedRow& row, int64_t numel);

}  // namespace fullshard::optim
