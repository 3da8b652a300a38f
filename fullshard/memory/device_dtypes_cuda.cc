// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include "fullshard/memory/device_dtypes.h"

namespace fullshard::memory {

std::string why_no_bfloat16(at::Device device) {
  if (!device.is_cuda()) return {};
  const auto* properties = at::cuda::getDeviceProperties(device.index());
  constexpr int kFirstGeneration = 8;  // Ampere
  if (properties->major >= kFirstGeneration) return {};
  return fmt::format("{} (compute capability {}.{}) has no bfloat16; use fp16 with loss scaling",
                     properties->name, properties->major, properties->minor);
}

}  // namespace fullshard::memory
