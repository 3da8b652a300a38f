// SPDX-License-Identifier: Apache-2.0
// Reads a whole tensor from a source.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "fullshard/formats/tensor_source.h"

namespace fullshard::tensor_io {

// The tensor has its stored dtype and shape.
at::Tensor read_tensor(const TensorSource& source, const std::string& name);

}  // namespace fullshard::tensor_io
