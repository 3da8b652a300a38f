#include "fullshard/optim/adamw_kernels.h"

#include <cmath>

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/element_blocks.h"

namespace fullshard {
namespace {

// p · decay - step_size · m / (√v / root_correction + epsilon) with the correction multiplied into
// the other two: one division for each element instead of two.
template <class Real>
struct Constants {
  explicit Constants(const AdamWStep& step)
      : clip(static_cast<Real>(step.clip)),
        l2(static_cast<Real>(step.l2)),
        to_moment(static_cast<Real>(1 - step.beta1)),
        beta2(static_cast<Real>(step.beta2)),
        to_variance(static_cast<Real>(1 - step.beta2)),
        decay(static_cast<Real>(step.decay)),
        step_size(static_cast<Real>(step.step_size * step.root_correction)),
        epsilon(static_cast<Real>(step.epsilon * step.root_correction)) {}

  Real clip, l2, to_moment, beta2, to_variance, decay, step_size, epsilon;
};

template <class Real>
[[gnu::always_inline]] inline void adamw_element(const Constants<Real>& c, Real& parameter,
                                                 Real gradient, Real& moment, Real& variance) {
  gradient = gradient * c.clip + parameter * c.l2;
  moment = moment + (gradient - moment) * c.to_moment;
  variance = variance * c.beta2 + gradient * gradient * c.to_variance;
  parameter = parameter * c.decay - c.step_size * moment / (std::sqrt(variance) + c.epsilon);
}

template <class Real>
FULLSHARD_VECTORISED void adamw_block(const AdamWStep& step, Real* __restrict p,
                                      const Real* __restrict g, Real* __restrict m,
                                      Real* __restrict v, const void* shown, int64_t numel) {
  const Constants<Real> c(step);
  int64_t i = 0;
  for (; i + kLineElements <= numel; i += kLineElements) {
    ask_for(i, p, g, m, v);
    ask_for_narrow(i, shown);
    for (int64_t j = i; j < i + kLineElements; ++j) adamw_element(c, p[j], g[j], m[j], v[j]);
  }
  for (; i < numel; ++i) adamw_element(c, p[i], g[i], m[i], v[i]);
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

}  // namespace fullshard
