#include "fullshard/optim/device_rules.h"
#include "fullshard/optim/step_kernel.cuh"

namespace fullshard {

void launch_step(const DeviceLaunch& launch, const LionStep* settings, CUstream_st* stream) {
  launch_rule<LionRule>(launch, settings, stream);
}

}  // namespace fullshard
