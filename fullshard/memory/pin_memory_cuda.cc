// SPDX-License-Identifier: Apache-2.0
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "fullshard/memory/host_memory.h"

namespace fullshard::memory {

PinMemory pin_memory_for(at::Device device) {
  if (!device.is_cuda()) return {};
  const auto pin = [device](void* data, int64_t bytes) -> std::string {
    const c10::cuda::CUDAGuard guard(device);
    const auto status =
        cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable);
    if (status == cudaSuccess) return {};
    (void)cudaGetLastError();  // it is told here; later calls have nothing to do with it
    return cudaGetErrorString(status);
  };
  // A failure means that the process ends: nothing is left to undo.
  return {pin, [](void* data) { (void)cudaHostUnregister(data); }};
}

}  // namespace fullshard::memory
