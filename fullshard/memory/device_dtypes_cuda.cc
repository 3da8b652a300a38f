// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include "fullshard/memory/device_dtypes.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::memory {

std::string why_no_bfloat16(at::Device device) {
  if (!device.is_cuda()) return {};
  const auto* properties = at::cuda::getDeviceProperties(device.index());
  constexpr int kFirstGeneration = 8;  // Ampere
  if (properties->major >= kFirstGeneration) return {};
  return fmt::format("{} (compute capability {}.{}) has no bfloat16; use fp16 with loss scaling",
                     properties->name, properties->major, properties->minor);
}

std::string why_no_fp8(at::Device device) {
  if (tensor::is_pretended()) return {};  // a plan may be for another GPU
  if (!device.is_cuda()) {
    return fmt::format("this rank computes on {}, and fp8 needs a GPU; use bf16", device.str());
  }
  const auto* properties = at::cuda::getDeviceProperties(device.index());
  const int capability = properties->major * 10 + properties->minor;
  constexpr int kFirstWithFp8 = 89;  // Ada and Hopper
  if (capability >= kFirstWithFp8) return {};
  return fmt::format("{} (compute capability {}.{}) has no fp8; use bf16", properties->name,
                     properties->major, properties->minor);
}

}  // namespace fullshard::memory
