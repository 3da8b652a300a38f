// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/kernels/adamw_kernels.h"

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/kernels/element_blocks.h"

namespace fullshard::optim {
namespace {

template <class Real>
FULLSHARD_VECTORISED void adamw_block(const AdamWStep& step, Real* __restrict p,
                                      const Real* __restrict g, Real* __restrict m,
                                      Real* __restrict v, const void* shown, int64_t numel) {
  const AdamWRule<Real> rule(step);
  int64_t i = 0;
  for (; i + base::kLineElements <= numel; i += base::kLineElements) {
    base::ask_for(i, p, g, m, v);
    base::ask_for_narrow(i, shown);
    for (int64_t j = i; j < i + base::kLineElements; ++j) rule(p[j], g[j], m[j], v[j]);
  }
  for (; i < numel; ++i) rule(p[i], g[i], m[i], v[i]);
}

}  // namespace

void adamw_step(const AdamWStep& step, const PieceElements& piece) {
  update_elements(piece, [&](const auto& block) {
    adamw_block(step, block.master, block.gradient, block.states[0], block.states[1], block.shown,
                block.numel);
  });
}

void adamw_step(const AdamWStep& step, float* parameters, const float* gradients, float* moments,
                float* variances, int64_t numel) {
  PieceElements piece;
  piece.master.data = parameters;
  piece.gradient.data = const_cast<float*>(gradients);
  piece.states[0].data = moments;
  piece.states[1].data = variances;
  piece.numel = numel;
  adamw_step(step, piece);
}

}  // namespace fullshard::optim
