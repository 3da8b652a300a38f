// SPDX-License-Identifier: Apache-2.0
// The most memory that this process has held so far.
#pragma once

#include <cstdint>

namespace fullshard::train {

// Resident memory of this process at its peak, in bytes.
int64_t peak_resident_bytes();

}  // namespace fullshard::train
