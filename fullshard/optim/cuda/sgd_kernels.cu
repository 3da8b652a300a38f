// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/cuda/device_rules.h"
#include "fullshard/optim/cuda/step_kernel.cuh"

namespace fullshard::optim {

void launch_step(const DeviceLaunch& launch, const SgdStep* settings, tensor::DeviceStream stream) {
  if (launch.num_states > 0) {
    launch_rule<MomentumRule>(launch, settings, stream);
  } else {
    launch_rule<PlainSgdRule>(launch, settings, stream);
  }
}

}  // namespace fullshard::optim
