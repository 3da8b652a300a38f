// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/kernels/sgd_kernels.h"

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/kernels/element_blocks.h"

namespace fullshard::optim {
namespace {

template <class Real>
FULLSHARD_VECTORISED void momentum_block(const SgdStep& step, Real* __restrict p,
                                         const Real* __restrict g, Real* __restrict b,
                                         int64_t numel) {
  const MomentumRule<Real> rule(step);
  int64_t i = 0;
  for (; i + base::kLineElements <= numel; i += base::kLineElements) {
    base::ask_for(i, p, g, b);
    for (int64_t j = i; j < i + base::kLineElements; ++j) rule(p[j], g[j], b[j]);
  }
  for (; i < numel; ++i) rule(p[i], g[i], b[i]);
}

template <class Real>
FULLSHARD_VECTORISED void plain_block(const SgdStep& step, Real* __restrict p,
                                      const Real* __restrict g, int64_t numel) {
  const PlainSgdRule<Real> rule(step);
  for (int64_t i = 0; i < numel; ++i) rule(p[i], g[i]);
}

}  // namespace

void sgd_step(const SgdStep& step, const PieceElements& piece) {
  update_elements(piece, [&](const auto& block) {
    if (block.states[0]) {
      momentum_block(step, block.master, block.gradient, block.states[0], block.numel);
    } else {
      plain_block(step, block.master, block.gradient, block.numel);
    }
  });
}

}  // namespace fullshard::optim
