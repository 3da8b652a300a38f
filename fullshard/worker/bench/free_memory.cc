// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/bench/free_memory.h"

#include <algorithm>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/launch/cgroup.h"
#include "fullshard/memory/available_memory.h"

namespace fullshard::worker {

int64_t free_bytes(at::Device device) {
  const int64_t available = memory::available_bytes(device);
  const auto limit = launch::cgroup_limits().memory_bytes;
  return device.is_cpu() && limit ? std::min(available, *limit) : available;
}

void check_free(std::string_view what, int64_t needed, at::Device device, std::string_view change) {
  const int64_t free = free_bytes(device);
  if (needed <= free) return;
  fail_as(ErrorKind::no_fit, "{}: needs {}, but {} has {} free; {}", what, format_bytes(needed),
          device.is_cpu() ? "this host" : "the GPU", format_bytes(free), change);
}

}  // namespace fullshard::worker
