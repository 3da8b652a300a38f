// SPDX-License-Identifier: Apache-2.0
// How fast this machine's memory is: what an optimizer step on the host, and copies to and from a
// device, share.
#pragma once

#include <cstdint>

namespace fullshard::tiers {

struct HostMemorySpeed {
  int num_threads = 0;
  double bytes_per_second = 0;  // of a triad, a = b + s c: 24 bytes per element, as STREAM counts
};

// `bytes` of all three arrays together, well beyond the caches; the best of `rounds`.
HostMemorySpeed measure_host_memory(int num_threads, int64_t bytes, int rounds);

}  // namespace fullshard::tiers
