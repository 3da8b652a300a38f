#pragma once

#include <cstdint>

namespace fullshard {

// Σ x² in fp64 over eight interleaved partial sums, added in a fixed order.
double sum_of_squares(const float* values, int64_t numel);

}  // namespace fullshard
