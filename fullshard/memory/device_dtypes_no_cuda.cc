// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/device_dtypes.h"

namespace fullshard::memory {

std::string why_no_bfloat16(at::Device) { return {}; }

}  // namespace fullshard::memory
