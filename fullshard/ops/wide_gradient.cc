// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/wide_gradient.h"

#include <ATen/ops/empty.h>

namespace fullshard::ops {

WideGradient::WideGradient(const at::Tensor& parameter) {
  if (!parameter.defined()) return;
  dtype_ = parameter.scalar_type();
  sink_ = nn::open_gradient_sink(parameter);
  const auto& slot = sink_.target;
  if (slot.defined() && slot.scalar_type() == at::kFloat && slot.is_contiguous()) {
    target_ = {slot, sink_.accumulate};
  } else {
    target_ = {at::empty(parameter.sizes(), parameter.options().dtype(at::kFloat)), false};
  }
}

at::Tensor WideGradient::finish() const {
  if (!target_.values.defined()) return {};
  if (!sink_.target.defined()) return target_.values.to(dtype_);
  if (sink_.target.is_same(target_.values)) return {};
  if (sink_.accumulate) {
    sink_.target.add_(target_.values);
  } else {
    sink_.target.copy_(target_.values);
  }
  return {};
}

}  // namespace fullshard::ops
