// SPDX-License-Identifier: Apache-2.0
// Which dtypes a device computes in.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace fullshard::memory {

// Empty: it does. Else what to tell a user who asked for bfloat16 there.
std::string why_no_bfloat16(at::Device device);
// Likewise of products of 8-bit floating-point numbers.
std::string why_no_fp8(at::Device device);

}  // namespace fullshard::memory
