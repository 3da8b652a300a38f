#include "fullshard/optim/adagrad_kernels.h"

#include <cmath>

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/element_blocks.h"

namespace fullshard {
namespace {

template <class Real>
struct Constants {
  explicit Constants(const AdagradStep& step)
      : clip(static_cast<Real>(step.clip)),
        lr(static_cast<Real>(step.lr)),
        decay(static_cast<Real>(step.weight_decay)),
        epsilon(static_cast<Real>(step.epsilon)) {}

  Real clip, lr, decay, epsilon;
};

template <class Real>
[[gnu::always_inline]] inline void element(const Constants<Real>& c, Real& parameter, Real gradient,
                                           Real& sum) {
  gradient = gradient * c.clip + parameter * c.decay;
  sum = sum + gradient * gradient;
  parameter = parameter - c.lr * gradient / (std::sqrt(sum) + c.epsilon);
}

template <class Real>
FULLSHARD_VECTORISED void adagrad_block(const AdagradStep& step, Real* __restrict p,
                                        const Real* __restrict g, Real* __restrict s,
                                        int64_t numel) {
  const Constants<Real> c(step);
  int64_t i = 0;
  for (; i + kLineElements <= numel; i += kLineElements) {
    ask_for(i, p, g, s);
    for (int64_t j = i; j < i + kLineElements; ++j) element(c, p[j], g[j], s[j]);
  }
  for (; i < numel; ++i) element(c, p[i], g[i], s[i]);
}

}  // namespace

void adagrad_step(const AdagradStep& step, const PieceElements& piece) {
  update_elements(piece, [&](const auto& block) {
    adagrad_block(step, block.master, block.gradient, block.states[0], block.numel);
  });
}

}  // namespace fullshard
