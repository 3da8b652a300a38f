// SPDX-License-Identifier: Apache-2.0
// A tensor of a source, whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "fullshard/formats/tensor_source.h"

namespace fullshard::tensor_io {

// In its own dtype and shape.
at::Tensor read_tensor(const TensorSource& source, const std::string& name);

}  // namespace fullshard::tensor_io
