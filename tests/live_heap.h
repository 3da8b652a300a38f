// SPDX-License-Identifier: Apache-2.0
// What this process has allocated and not freed.
#pragma once

#include <malloc.h>

#include <cstdint>

namespace fullshard::testing {

// In bytes, as the C library counts them over all threads; a few freed kilobytes that it holds
// ready for each thread count as allocated.
inline int64_t live_heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace fullshard::testing
