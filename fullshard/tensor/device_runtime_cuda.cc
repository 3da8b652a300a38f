// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <mutex>
#include <optional>

#include "fullshard/tensor/device_runtime.h"

namespace fullshard::tensor {

bool has_device_kernels() { return true; }

CUstream_st* native_stream(const c10::Stream& stream) {
  return c10::cuda::CUDAStream(stream).stream();
}

std::string launch_problem() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? std::string() : cudaGetErrorString(error);
}

RandomPlace draw_random(c10::Device device, int64_t numbers) {
  const auto generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      std::nullopt, at::cuda::detail::getDefaultCUDAGenerator(device.index()));
  const std::lock_guard lock(generator->mutex_);
  const at::PhiloxCudaState state = generator->philox_cuda_state(static_cast<uint64_t>(numbers));
  if (!state.captured_) return {.seed = state.seed_.val, .offset = state.offset_.val};
  return {.seed_at = state.seed_.ptr,
          .offset_at = state.offset_.ptr,
          .further = state.offset_intragraph_};
}

}  // namespace fullshard::tensor
