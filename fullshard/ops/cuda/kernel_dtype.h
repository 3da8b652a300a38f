// SPDX-License-Identifier: Apache-2.0
// What kernels of the GPU read and write; they compute in fp32. Launchers take raw pointers and a
// stream, allocate nothing and wait for nothing.
#pragma once

#include "fullshard/tensor/device_stream.h"

namespace fullshard::ops {

enum class KernelDtype { fp32, bf16 };

}  // namespace fullshard::ops
