// SPDX-License-Identifier: Apache-2.0
// Writes tensors of any layout into safetensors files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "fullshard/formats/safetensors/safetensors_writer.h"

namespace fullshard::tensor_io {

// A CPU tensor; it is cast to the planned dtype and laid out row-major in blocks of 1 MiB.
void write_tensor(SafetensorsWriter& writer, const std::string& name, const at::Tensor& values);
// Part of a tensor: elements [begin, begin + values.numel()).
void write_tensor_range(SafetensorsWriter& writer, const std::string& name, int64_t begin,
                        const at::Tensor& values);

}  // namespace fullshard::tensor_io
