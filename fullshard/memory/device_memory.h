// SPDX-License-Identifier: Apache-2.0
// What an accelerator's allocator counts, and the end of what was issued to it. On the CPU all
// counts are zero and nothing is ever pending.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fullshard::memory {

struct DeviceMemory {
  int64_t allocated_bytes = 0;
  int64_t peak_bytes = 0;        // of what was allocated, since the last reset
  int64_t reserved_bytes = 0;    // taken from the driver, in use or not
  int64_t num_driver_calls = 0;  // allocations that went to the driver
  int64_t num_retries = 0;       // allocations that first had to free what was kept
};

DeviceMemory device_memory(at::Device device);
void reset_device_peak(at::Device device);

// Gives the driver what the allocator keeps and nobody uses, for other programs.
void release_unused(at::Device device);

// Waits for everything issued to the current stream.
void synchronise(at::Device device);

}  // namespace fullshard::memory
