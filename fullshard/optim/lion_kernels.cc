#include "fullshard/optim/lion_kernels.h"

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/element_blocks.h"

namespace fullshard {
namespace {

template <class Real>
struct Constants {
  explicit Constants(const LionStep& step)
      : clip(static_cast<Real>(step.clip)),
        beta1(static_cast<Real>(step.beta1)),
        to_direction(static_cast<Real>(1 - step.beta1)),
        beta2(static_cast<Real>(step.beta2)),
        to_moment(static_cast<Real>(1 - step.beta2)),
        decay(static_cast<Real>(step.decay)),
        lr(static_cast<Real>(step.lr)) {}

  Real clip, beta1, to_direction, beta2, to_moment, decay, lr;
};

template <class Real>
[[gnu::always_inline]] inline void element(const Constants<Real>& c, Real& parameter, Real gradient,
                                           Real& moment) {
  gradient = gradient * c.clip;
  const Real direction = moment * c.beta1 + gradient * c.to_direction;
  const Real step = direction > 0 ? c.lr : (direction < 0 ? -c.lr : Real(0));
  parameter = parameter * c.decay - step;
  moment = moment * c.beta2 + gradient * c.to_moment;
}

template <class Real>
FULLSHARD_VECTORISED void lion_block(const LionStep& step, Real* __restrict p,
                                     const Real* __restrict g, Real* __restrict m, int64_t numel) {
  const Constants<Real> c(step);
  int64_t i = 0;
  for (; i + kLineElements <= numel; i += kLineElements) {
    ask_for(i, p, g, m);
    for (int64_t j = i; j < i + kLineElements; ++j) element(c, p[j], g[j], m[j]);
  }
  for (; i < numel; ++i) element(c, p[i], g[i], m[i]);
}

}  // namespace

void lion_step(const LionStep& step, const PieceElements& piece) {
  update_elements(piece, [&](const auto& block) {
    lion_block(step, block.master, block.gradient, block.states[0], block.numel);
  });
}

}  // namespace fullshard
