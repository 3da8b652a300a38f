// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/kernels/adagrad_kernels.h"

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/kernels/element_blocks.h"

namespace fullshard::optim {
namespace {

template <class Real>
FULLSHARD_VECTORISED void adagrad_block(const AdagradStep& step, Real* __restrict p,
                                        const Real* __restrict g, Real* __restrict s,
                                        int64_t numel) {
  const AdagradRule<Real> rule(step);
  int64_t i = 0;
  for (; i + base::kLineElements <= numel; i += base::kLineElements) {
    base::ask_for(i, p, g, s);
    for (int64_t j = i; j < i + base::kLineElements; ++j) rule(p[j], g[j], s[j]);
  }
  for (; i < numel; ++i) rule(p[i], g[i], s[i]);
}

}  // namespace

void adagrad_step(const AdagradStep& step, const PieceElements& piece) {
  update_elements(piece, [&](const auto& block) {
    adagrad_block(step, block.master, block.gradient, block.states[0], block.numel);
  });
}

}  // namespace fullshard::optim
