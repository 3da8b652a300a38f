// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "fullshard/base/error.h"
#include "fullshard/memory/available_memory.h"
#include "fullshard/memory/device_memory.h"

namespace fullshard::memory {

int64_t available_on_accelerator(c10::Device device) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // whose allocator is asked
  const c10::cuda::CUDAGuard guard(device);
  size_t free = 0, total = 0;
  const auto status = cudaMemGetInfo(&free, &total);
  check(status == cudaSuccess, "device {} does not say how much memory it has free: {}",
        device.str(), cudaGetErrorString(status));
  const DeviceMemory held = device_memory(device);
  return static_cast<int64_t>(free) + held.reserved_bytes - held.allocated_bytes;
}

}  // namespace fullshard::memory
