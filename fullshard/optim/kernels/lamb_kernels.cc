// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/kernels/lamb_kernels.h"

#include <vector>

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/kernels/element_blocks.h"

namespace fullshard::optim {
namespace {

// A fixed number of lanes whatever the instruction set, so that the bits are the same on all.
template <class Real>
[[gnu::always_inline]] inline double squares(const Real* values, int64_t numel) {
  double lanes[base::kLineElements] = {};
  int64_t i = 0;
  for (; i + base::kLineElements <= numel; i += base::kLineElements) {
    for (int64_t lane = 0; lane < base::kLineElements; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < numel; ++i)
    lanes[i % base::kLineElements] += static_cast<double>(values[i]) * values[i];
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

template <class Real>
FULLSHARD_VECTORISED void moments_block(const LambStep& step, const Real* __restrict p,
                                        const Real* __restrict g, Real* __restrict m,
                                        Real* __restrict v, int64_t numel, LambSquares* sums) {
  const LambRule<Real> rule(step);
  Real directions[kBlockNumel];
  for (int64_t i = 0; i < numel; ++i) {
    directions[i] = rule.moments(p[i], g[i], m[i], v[i]);
  }
  sums->parameter = squares(p, numel);
  sums->direction = squares(directions, numel);
}

template <class Real>
FULLSHARD_VECTORISED void step_block(const LambStep& step, Real* __restrict p,
                                     const Real* __restrict m, const Real* __restrict v,
                                     int64_t numel) {
  const LambRule<Real> rule(step);
  for (int64_t i = 0; i < numel; ++i) {
    Real moment = m[i], variance = v[i];
    rule(p[i], Real(0), moment, variance);
  }
}

}  // namespace

LambSquares lamb_moments(const LambStep& step, const PieceElements& piece) {
  auto states_only = piece;
  states_only.writes_master = false;
  std::vector<LambSquares> sums((piece.numel + kBlockNumel - 1) / kBlockNumel);
  update_elements(states_only, [&](const auto& block) {
    moments_block(step, block.master, block.gradient, block.states[0], block.states[1], block.numel,
                  &sums[block.index]);
  });
  LambSquares total;
  for (const auto& sum : sums) {
    total.parameter += sum.parameter;
    total.direction += sum.direction;
  }
  return total;
}

void lamb_step(const LambStep& step, const PieceElements& piece) {
  auto without_gradient = piece;
  without_gradient.gradient = {};
  update_elements(without_gradient, [&](const auto& block) {
    step_block(step, block.master, block.states[0], block.states[1], block.numel);
  });
}

}  // namespace fullshard::optim
