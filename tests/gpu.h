// SPDX-License-Identifier: Apache-2.0
// The device of tests that only a GPU can show.
#pragma once

#include <c10/core/Device.h>

namespace fullshard::testing {

inline const c10::Device kGpu(c10::kCUDA, 0);

}  // namespace fullshard::testing
