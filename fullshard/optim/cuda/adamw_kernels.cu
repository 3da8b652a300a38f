// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/cuda/device_rules.h"
#include "fullshard/optim/cuda/step_kernel.cuh"

namespace fullshard::optim {

void launch_step(const DeviceLaunch& launch, const AdamWStep* settings,
                 tensor::DeviceStream stream) {
  launch_rule<AdamWRule>(launch, settings, stream);
}

}  // namespace fullshard::optim
