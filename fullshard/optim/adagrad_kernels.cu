#include "fullshard/optim/device_rules.h"
#include "fullshard/optim/step_kernel.cuh"

namespace fullshard {

void launch_step(const DeviceLaunch& launch, const AdagradStep* settings, CUstream_st* stream) {
  launch_rule<AdagradRule>(launch, settings, stream);
}

}  // namespace fullshard
