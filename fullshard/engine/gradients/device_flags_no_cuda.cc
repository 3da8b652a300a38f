// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/engine/gradients/device_flag_kernels.h"

namespace fullshard::engine {

void raise_flag(const at::Tensor&, const at::Tensor&) {
  fail("raise_flag: this build has no CUDA kernels; configure with the cuda preset");
}

}  // namespace fullshard::engine
