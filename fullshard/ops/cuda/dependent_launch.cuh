// SPDX-License-Identifier: Apache-2.0
// Kernels of a chain that begin before the one they depend on has ended, where the GPU can do so
// (compute capability 9.0, programmatic dependent launch): what needs nothing of it, such as
// loading weights, lies under its last blocks.
//
// Such a kernel calls wait_for_previous() in every thread before it reads or writes what others
// touch, and let_next_begin() after it.
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace fullshard::ops {

__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

inline bool has_dependent_launch() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 9;
}

struct LaunchSize {
  dim3 grid;
  int threads;
  int shared_bytes;  // beside what the kernel declares
};

// Errors are the caller's to ask for, as after <<<>>>.
template <class... Parameters, class... Arguments>
void launch_dependent(void (*kernel)(Parameters...), const LaunchSize& size, cudaStream_t stream,
                      Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = size.grid;
  config.blockDim = dim3(static_cast<unsigned>(size.threads));
  config.dynamicSmemBytes = static_cast<size_t>(size.shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = has_dependent_launch() ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace fullshard::ops
