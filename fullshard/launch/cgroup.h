// SPDX-License-Identifier: Apache-2.0
// What the control groups around this process allow it.
#pragma once

#include <cstdint>
#include <optional>

namespace fullshard::launch {

struct CgroupLimits {
  std::optional<double> cores;  // processor seconds per second
  std::optional<int64_t> memory_bytes;
};

// The tightest limits of this process's group and those above it; absent where nothing is limited
// or readable.
CgroupLimits cgroup_limits();

}  // namespace fullshard::launch
