// The most memory that this process has held so far.
#pragma once

#include <cstdint>

namespace fullshard {

// Resident memory of this process at its peak, in bytes.
int64_t peak_resident_bytes();

}  // namespace fullshard
