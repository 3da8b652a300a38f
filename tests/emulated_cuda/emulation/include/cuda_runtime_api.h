// SPDX-License-Identifier: Apache-2.0
// In the place of CUDA's header: what the kernels' launchers use of it.
#pragma once

#include <cstddef>
#include <cstring>

#include "tests/emulated_cuda/emulation/block.h"

using cudaStream_t = CUstream_st*;

enum cudaError_t { cudaSuccess = 0 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrMaxSharedMemoryPerBlockOptin
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr asked, int) {
  const auto& device = ::fullshard::emulation::Device::current();
  *value = asked == cudaDevAttrMultiProcessorCount      ? device.num_multiprocessors
           : asked == cudaDevAttrComputeCapabilityMajor ? device.major
                                                        : device.most_shared_bytes;
  return cudaSuccess;
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  ::fullshard::emulation::give_to_stream(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
