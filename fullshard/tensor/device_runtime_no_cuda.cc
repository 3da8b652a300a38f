// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/tensor/device_runtime.h"

namespace fullshard::tensor {

bool has_device_kernels() { return false; }
CUstream_st* native_stream(const c10::Stream&) { return nullptr; }
std::string launch_problem() {
  return "this build of Fullshard has no CUDA; configure it with the cuda preset and a libtorch "
         "that has CUDA";
}
RandomPlace draw_random(c10::Device device, int64_t) {
  fail("random numbers of {}: {}", device.str(), launch_problem());
}

}  // namespace fullshard::tensor
