// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/device_flags.h"

#include <ATen/ops/zeros.h>

#include "fullshard/engine/gradients/device_flag_kernels.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::engine {

void DeviceFlags::look_at(int64_t number, const at::Tensor& tensor) {
  if (number >= kMost || tensor.numel() == 0 || !tensor.is_floating_point()) return;
  if (tensor::is_pretended()) return tensor::note_kernel("non_finite", {tensor});
  if (!flags_.defined()) {
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
