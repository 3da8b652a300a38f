// SPDX-License-Identifier: Apache-2.0
// Host memory for what an accelerator does not hold: pinned, so that copies run at the speed of the
// bus and beside computation, and exact in size (torch's own cache of pinned memory rounds up to
// powers of two).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "fullshard/memory/pool.h"

namespace fullshard::memory {

// How memory is pinned, and what undoes that.
struct PinMemory {
  std::function<std::string(void* data, int64_t bytes)> pin;  // why not; empty: it is pinned
  std::function<void(void* data)> unpin;
};

// Of the device's driver; without functions where there is nothing to pin for.
PinMemory pin_memory_for(at::Device device);

// Gives 1-D uint8 tensors of host memory. What cannot be pinned stays pageable, with one warning
// for all of it that says what this costs.
Pool::Source host_memory_source(PinMemory pinning);

}  // namespace fullshard::memory
