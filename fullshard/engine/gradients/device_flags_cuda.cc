// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/isfinite.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "fullshard/engine/gradients/device_flag_kernels.h"
#include "fullshard/engine/gradients/exponent_kernels.h"

namespace fullshard::engine {
namespace {

// The exponent's bits in every element of a word of 32; 0: not a dtype of this kernel.
ExponentBits exponent_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) return {0x7f800000u, 0};
  if (dtype == at::kBFloat16) return {0x7f80u, 0x7f800000u};
  if (dtype == at::kHalf) return {0x7c00u, 0x7c000000u};
  return {};
}

}  // namespace

void raise_flag(const at::Tensor& flag, const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  const c10::cuda::CUDAGuard guard(tensor.device());
  const auto bits = exponent_of(tensor.scalar_type());
  const bool is_plain = tensor.is_non_overlapping_and_dense() && tensor.nbytes() % 16 == 0 &&
                        reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
  if (bits.low == 0 || !is_plain) {
    flag.add_(at::isfinite(tensor).all().logical_not());
    return;
  }
  launch_find_exponent(flag.mutable_data_ptr<int32_t>(), tensor.const_data_ptr(),
                       static_cast<int64_t>(tensor.nbytes()) / 16, bits,
                       c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace fullshard::engine
