// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/kept_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <limits>

namespace fullshard::train {

void keep_freed_memory() {
  constexpr int kLargestKept = 32 << 20;  // the largest that glibc takes
  for (const char* name : {"GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_",
                           "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_"}) {
    if (std::getenv(name) != nullptr) return;
  }
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, kLargestKept);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

}  // namespace fullshard::train
