#include "fullshard/optim/adamw_kernels.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "fullshard/base/vectorised.h"

namespace fullshard {
namespace {

constexpr int64_t kGrain = 1 << 16;

FULLSHARD_VECTORISED
void adamw_range(const AdamWStep& step, float* __restrict parameters,
                 const float* __restrict gradients, float* __restrict moments,
                 float* __restrict variances, int64_t numel) {
  const AdamWStep s = step;
  for (int64_t i = 0; i < numel; ++i) {
    const float gradient = gradients[i] * s.clip;
    const float moment = moments[i] + (gradient - moments[i]) * (1 - s.beta1);
    const float variance = variances[i] * s.beta2 + gradient * gradient * (1 - s.beta2);
    moments[i] = moment;
    variances[i] = variance;
    const float denominator = std::sqrt(variance) / s.root_correction + s.epsilon;
    parameters[i] = parameters[i] * s.decay - s.step_size * (moment / denominator);
  }
}

}  // namespace

void adamw_step(const AdamWStep& step, float* parameters, const float* gradients, float* moments,
                float* variances, int64_t numel) {
  at::parallel_for(0, numel, kGrain, [&](int64_t begin, int64_t end) {
    adamw_range(step, parameters + begin, gradients + begin, moments + begin, variances + begin,
                end - begin);
  });
}

}  // namespace fullshard
