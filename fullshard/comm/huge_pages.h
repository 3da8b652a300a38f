// SPDX-License-Identifier: Apache-2.0
// Pages of 2 MiB for large buffers. A processor keeps the addresses of a few thousand pages at
// hand; loops over several arrays of normal pages wait for addresses as much as for values
// (bench/results/cpu_adamw.md). Both functions are wishes: where the kernel has no huge pages, or
// none free, the pages are normal. Only pages that lie wholly in the range change, so that huge
// ones cost no memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fullshard::comm {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// For anonymous memory, before it is touched.
void wish_for_huge_pages(std::byte* begin, int64_t bytes);

// For a memfd, for which kernels come with huge pages switched off: brings the pages into being and
// joins them, which is also quicker than touching each (Linux 6.1). The mapping must begin at a
// multiple of kHugePageBytes. Values stay.
void join_huge_pages(std::byte* begin, int64_t bytes);

}  // namespace fullshard::comm
