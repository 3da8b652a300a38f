// SPDX-License-Identifier: Apache-2.0
// How much more memory a device gives this process.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace fullshard::memory {

// Of an accelerator: what its driver has free, and what libtorch's allocator holds unused. Of the
// CPU: what the kernel would give without swapping; a control group's limit is not looked at.
int64_t available_bytes(c10::Device device);

// The accelerator's own part of it.
int64_t available_on_accelerator(c10::Device device);

}  // namespace fullshard::memory
