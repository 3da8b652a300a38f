// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "fullshard/memory/device_dtypes.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::memory {

std::string why_no_bfloat16(at::Device) { return {}; }

std::string why_no_fp8(at::Device device) {
  if (tensor::is_pretended()) return {};  // a plan may be for a GPU
  return fmt::format("this rank computes on {}, and fp8 needs a GPU; use bf16", device.str());
}

}  // namespace fullshard::memory
