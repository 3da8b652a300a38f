// SPDX-License-Identifier: Apache-2.0
// Where a kernel leaves the gradient of a small parameter, which it sums in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/nn/gradient_hook.h"
#include "fullshard/ops/device_operators.h"

namespace fullshard::ops {

// Opens the parameter's gradient sink; the target is the sink itself when that is fp32, else a
// tensor of its own. For one backward of one operator; the target must be filled before finish().
class WideGradient {
 public:
  // Undefined: nobody wants this gradient, and neither target nor result is defined.
  explicit WideGradient(const at::Tensor& parameter);

  const WideTarget& target() const { return target_; }
  // What the backward returns for the parameter: undefined when the sink has it.
  at::Tensor finish() const;

 private:
  nn::GradientSink sink_;
  WideTarget target_;
  at::ScalarType dtype_ = at::kFloat;
};

}  // namespace fullshard::ops
