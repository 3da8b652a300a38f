// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/available_memory.h"

#include "fullshard/base/memory_info.h"

namespace fullshard::memory {

int64_t available_bytes(c10::Device device) {
  return device.is_cpu() ? base::memory_info().available_bytes : available_on_accelerator(device);
}

}  // namespace fullshard::memory
