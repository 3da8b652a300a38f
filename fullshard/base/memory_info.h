// SPDX-License-Identifier: Apache-2.0
// What the kernel says of this host's memory. Control groups may allow less (launch/cgroup).
#pragma once

#include <cstdint>

namespace fullshard::base {

struct MemoryInfo {
  int64_t total_bytes = 0;      // 0: not known
  int64_t available_bytes = 0;  // without swapping, as /proc/meminfo has it
};

MemoryInfo memory_info();

}  // namespace fullshard::base
