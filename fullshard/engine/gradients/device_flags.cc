// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/device_flags.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include "fullshard/engine/gradients/exponent_kernels.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::engine {
namespace {

// The exponent's bits in every element of a word of 32; 0: not a dtype of this kernel.
ExponentBits exponent_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) return {0x7f800000u, 0};
  if (dtype == at::kBFloat16) return {0x7f80u, 0x7f800000u};
  if (dtype == at::kHalf) return {0x7c00u, 0x7c000000u};
  return {};
}

bool lies_in_packs(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && tensor.nbytes() % 16 == 0 &&
         reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

// flag[0] = 1 when the floating tensor, of the same GPU, holds an infinity or NaN.
void raise_flag(const at::Tensor& flag, const at::Tensor& tensor) {
  const auto bits = exponent_of(tensor.scalar_type());
  if (!tensor::is_pretended() && (bits.low == 0 || !lies_in_packs(tensor))) {
    flag.add_(at::isfinite(tensor).all().logical_not());
    return;
  }
  tensor::launch_kernel(
      "non_finite", tensor.device(), {tensor}, [&](const tensor::KernelLaunch& launch) {
        launch_find_exponent(launch.write_as<int32_t>(flag), launch.read(tensor),
                             static_cast<int64_t>(tensor.nbytes()) / 16, bits, launch.stream());
      });
}

}  // namespace

void DeviceFlags::look_at(int64_t number, const at::Tensor& tensor) {
  if (number >= kMost || tensor.numel() == 0 || !tensor.is_floating_point()) return;
  const at::NoGradGuard no_grad;
  if (!flags_.defined()) {
    // A first forward may be in inference mode, and later ones not.
    const c10::InferenceMode off(false);
    flags_ = at::zeros({kMost}, at::TensorOptions().dtype(at::kInt).device(tensor.device()));
  }
  is_used_ = true;
  raise_flag(flags_.narrow(0, number, 1), tensor);
}

std::optional<int64_t> DeviceFlags::first() const {
  if (!is_used_) return std::nullopt;
  const auto host = flags_.to(at::kCPU);
  const auto* flags = host.const_data_ptr<int32_t>();
  for (int64_t number = 0; number < kMost; ++number) {
    if (flags[number] != 0) return number;
  }
  return std::nullopt;
}

void DeviceFlags::clear() {
  if (is_used_) flags_.zero_();
}

}  // namespace fullshard::engine
