// Copies and sums of more than the caches hold. They walk several places side by side, which keeps
// more of the memory's channels busy, and write past the caches where a line need not be read
// first: a normal store fetches the line that it overwrites, a third of a copy's traffic
// (bench/results/collectives.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fullshard::kernels {

// From here on the result does not stay in a core's own cache anyway.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;

// As memcpy. Other ranks may be told of the result at once.
void streamed_copy(std::byte* to, const std::byte* from, int64_t bytes);

// output = (a + b) · scale, with the bits of sum_of_two. The output must not be one of the rows.
void streamed_sum_of_two(float* output, const float* a, const float* b, float scale, int64_t numel);

// The same bits into two places; each of them may be one of the rows.
void sum_of_two_into_two(float* first, float* second, const float* a, const float* b, float scale,
                         int64_t numel);

}  // namespace fullshard::kernels
