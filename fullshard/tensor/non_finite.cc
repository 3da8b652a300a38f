// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/non_finite.h"

#include <ATen/ops/isfinite.h>
#include <c10/core/GradMode.h>

#include "fullshard/tensor/non_finite_kernels.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::tensor {
namespace {

template <class Bits>
bool any(const at::Tensor& tensor, Bits exponent) {
  return any_has_all_bits(static_cast<const Bits*>(tensor.const_data_ptr()), tensor.numel(),
                          exponent);
}

}  // namespace

bool has_non_finite(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0 || !tensor.is_floating_point()) return false;
  if (is_pretended()) return false;
  if (tensor.is_cpu() && tensor.is_non_overlapping_and_dense()) {
    switch (tensor.scalar_type()) {
      case at::kFloat:
        return any<uint32_t>(tensor, 0x7f80'0000u);
      case at::kBFloat16:
        return any<uint16_t>(tensor, 0x7f80u);
      case at::kHalf:
        return any<uint16_t>(tensor, 0x7c00u);
      case at::kDouble:
        return any<uint64_t>(tensor, 0x7ff0'0000'0000'0000u);
      default:
        break;
    }
  }
  const c10::NoGradGuard no_grad;
  return !at::isfinite(tensor).all().item<bool>();
}

}  // namespace fullshard::tensor
