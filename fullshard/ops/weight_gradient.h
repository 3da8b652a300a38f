// The weight gradient of a linear layer, wherever it has to go.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard {

// output_gradient^T * input over all leading dimensions: written or added into the parameter's
// gradient sink when it has one, and then an undefined tensor is returned. `parameter` is the
// parameter itself: what an autograd node unpacks may be another tensor with its values.
at::Tensor weight_gradient(const at::Tensor& parameter, const at::Tensor& input,
                           const at::Tensor& output_gradient);

}  // namespace fullshard
