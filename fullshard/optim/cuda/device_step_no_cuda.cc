// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/optim/cuda/device_step.h"

namespace fullshard::optim {
namespace {

[[noreturn]] void refuse() {
  fail(
      "an optimizer's step on CUDA: this build of Fullshard has no CUDA; configure it with "
      "-DFULLSHARD_CUDA=ON and a libtorch that has CUDA");
}

}  // namespace

void step_on_device(const DevicePass&, const std::vector<AdamWStep>&) { refuse(); }
void step_on_device(const DevicePass&, const std::vector<SgdStep>&) { refuse(); }
void step_on_device(const DevicePass&, const std::vector<AdagradStep>&) { refuse(); }
void step_on_device(const DevicePass&, const std::vector<LionStep>&) { refuse(); }
at::Tensor moments_on_device(const DevicePass&, const std::vector<LambStep>&, int64_t) { refuse(); }
at::Tensor trust_ratios_on_device(const at::Tensor&, float, float) { refuse(); }
void step_on_device(const DevicePass&, const std::vector<LambStep>&, const at::Tensor&) {
  refuse();
}

}  // namespace fullshard::optim
