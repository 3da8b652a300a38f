// SPDX-License-Identifier: Apache-2.0
// In the place of CUDA's header.
#pragma once

#include <c10/util/Half.h>
#include <cuda_runtime.h>

struct __half {
  c10::Half value;
};

inline float __half2float(__half value) { return value.value; }
