#include "fullshard/optim/device_rules.h"
#include "fullshard/optim/step_kernel.cuh"

namespace fullshard {

void launch_step(const DeviceLaunch& launch, const SgdStep* settings, CUstream_st* stream) {
  if (launch.num_states > 0) {
    launch_rule<MomentumRule>(launch, settings, stream);
  } else {
    launch_rule<PlainSgdRule>(launch, settings, stream);
  }
}

}  // namespace fullshard
