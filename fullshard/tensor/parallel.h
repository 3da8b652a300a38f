// SPDX-License-Identifier: Apache-2.0
// at::parallel_for for headers: its own header brings most of ATen along.
#pragma once

#include <cstdint>
#include <functional>

namespace fullshard::tensor {

// Calls body(begin, end) with ranges that cover [0, size) on torch's intra-op threads, each at
// least `grain` long; all on this thread when there is not enough work or a region is running
// already.
void parallel_ranges(int64_t size, int64_t grain,
                     const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace fullshard::tensor
