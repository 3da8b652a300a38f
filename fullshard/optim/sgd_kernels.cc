#include "fullshard/optim/sgd_kernels.h"

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/element_blocks.h"

namespace fullshard {
namespace {

template <class Real>
struct Constants {
  explicit Constants(const SgdStep& step)
      : clip(static_cast<Real>(step.clip)),
        lr(static_cast<Real>(step.lr)),
        decay(static_cast<Real>(step.weight_decay)),
        momentum(static_cast<Real>(step.momentum)),
        from_gradient(static_cast<Real>(step.from_gradient)),
        // The direction is buffer, or gradient + momentum · buffer with Nesterov.
        of_gradient(step.nesterov ? 1 : 0),
        of_buffer(step.nesterov ? momentum : Real(1)) {}

  Real clip, lr, decay, momentum, from_gradient, of_gradient, of_buffer;
};

template <class Real>
[[gnu::always_inline]] inline void element(const Constants<Real>& c, Real& parameter, Real gradient,
                                           Real& buffer) {
  gradient = gradient * c.clip + parameter * c.decay;
  buffer = buffer * c.momentum + gradient * c.from_gradient;
  parameter = parameter - c.lr * (gradient * c.of_gradient + buffer * c.of_buffer);
}

template <class Real>
FULLSHARD_VECTORISED void momentum_block(const SgdStep& step, Real* __restrict p,
                                         const Real* __restrict g, Real* __restrict b,
                                         int64_t numel) {
  const Constants<Real> c(step);
  int64_t i = 0;
  for (; i + kLineElements <= numel; i += kLineElements) {
    ask_for(i, p, g, b);
    for (int64_t j = i; j < i + kLineElements; ++j) element(c, p[j], g[j], b[j]);
  }
  for (; i < numel; ++i) element(c, p[i], g[i], b[i]);
}

template <class Real>
FULLSHARD_VECTORISED void plain_block(const SgdStep& step, Real* __restrict p,
                                      const Real* __restrict g, int64_t numel) {
  const Constants<Real> c(step);
  for (int64_t i = 0; i < numel; ++i) {
    p[i] = p[i] - c.lr * (g[i] * c.clip + p[i] * c.decay);
  }
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

}  // namespace fullshard
