// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAContext.h>

#include "fullshard/memory/device_name.h"

namespace fullshard::memory {

std::string device_name(c10::Device device) {
  return device.is_cpu() ? "CPU" : at::cuda::getDeviceProperties(device.index())->name;
}

}  // namespace fullshard::memory
