// SPDX-License-Identifier: Apache-2.0
// Copies and sums of more than the caches hold. They walk several places side by side, which keeps
// more of the memory's channels busy, and write past the caches where a line need not be read
// first: a normal store fetches the line that it overwrites, a third of a copy's traffic
// (bench/results/collectives.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fullshard::kernels {

// From here on the result does not stay in a core's own cache anyway.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;

// As memcpy. Other ranks may be told of the result at once.
void streamed_copy(std::byte* to, const std::byte* from, int64_t bytes);

// output = (a + b) · scale, with the bits of sum_of_two. The output must not be one of the rows.
void streamed_sum_of_two(float* output, const float* a, const float* b, float scale, int64_t numel);

// output = (row 0 + row 1 + ...) · scale in every one of as many outputs as there are rows, two or
// four; outputs may be rows. The bits of sum_of_two and sum_of_four.
bool can_sum_into_all(int num_rows);
void sum_into_all(std::span<float* const> outputs, std::span<const float* const> rows, float scale,
                  int64_t numel);

}  // namespace fullshard::kernels
