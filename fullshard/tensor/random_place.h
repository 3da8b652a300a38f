// SPDX-License-Identifier: Apache-2.0
// Where a kernel finds its place in the sequence of a generator: a seed and an offset. While a
// graph is captured they are not known yet, and the device finds them in its memory when the graph
// runs. No torch, no CUDA.
#pragma once

#include <cstdint>

namespace fullshard::tensor {

struct RandomPlace {
  uint64_t seed = 0, offset = 0;
  const int64_t* seed_at = nullptr;  // null: they are those above
  const int64_t* offset_at = nullptr;
  uint64_t further = 0;  // to be added to the offset
};

}  // namespace fullshard::tensor
