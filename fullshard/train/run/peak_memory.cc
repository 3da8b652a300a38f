// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/peak_memory.h"

#include <sys/resource.h>

namespace fullshard::train {

int64_t peak_resident_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace fullshard::train
