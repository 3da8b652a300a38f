// SPDX-License-Identifier: Apache-2.0
// What kernels that drop elements share: the factor of every element, by its place.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/element_dropout.h"

namespace fullshard::ops {

inline constexpr int kGroup = 8;  // elements of one draw, 16 bits each

// Philox 4x32 with ten rounds (Salmon et al., Parallel random numbers: as easy as 1, 2, 3): four
// words for every counter and key.
__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53u} * counter.x;
    const uint64_t second = uint64_t{0xCD9E8D57u} * counter.z;
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter.y ^ key.x, static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter.w ^ key.y, static_cast<uint32_t>(first)};
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return counter;
}

__device__ __forceinline__ uint2 words_of(uint64_t value) {
  return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
}

// The two numbers, wherever they were.
struct FoundDraw {
  uint64_t seed, offset;

  __device__ __forceinline__ explicit FoundDraw(const tensor::RandomPlace& draw)
      : seed(draw.seed_at == nullptr ? draw.seed : static_cast<uint64_t>(*draw.seed_at)),
        offset((draw.seed_at == nullptr ? draw.offset : static_cast<uint64_t>(*draw.offset_at)) +
               draw.further) {}

  __device__ __forceinline__ void leave(int64_t* drawn) const {
    if (drawn == nullptr) return;
    drawn[0] = static_cast<int64_t>(seed);
    drawn[1] = static_cast<int64_t>(offset);
  }
};

// The factor of each element of a group.
struct GroupFactors {
  float of[kGroup];

  __device__ __forceinline__ GroupFactors(const FoundDraw& found, int64_t group,
                                          const ElementDropout& dropout) {
    const uint2 low = words_of(found.offset / kDropoutDraws);
    const uint2 high = words_of(static_cast<uint64_t>(group));
    const uint4 drawn = philox({low.x, low.y, high.x, high.y}, words_of(found.seed));
    const uint32_t words[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      of[2 * i] = (words[i] & 0xffffu) < dropout.threshold ? 0.0f : dropout.scale;
      of[2 * i + 1] = (words[i] >> 16) < dropout.threshold ? 0.0f : dropout.scale;
    }
  }
};

// Of the elements from `first` on, which lie in one group.
template <int kCount>
__device__ __forceinline__ void load_factors(float (&factors)[kCount], const FoundDraw& found,
                                             int64_t first, const ElementDropout& dropout) {
  static_assert(kGroup % kCount == 0);
  const GroupFactors group(found, first / kGroup, dropout);
  const int place = static_cast<int>(first % kGroup);
#pragma unroll
  for (int begin = 0; begin < kGroup; begin += kCount) {
    if (begin != place) continue;
#pragma unroll
    for (int i = 0; i < kCount; ++i) factors[i] = group.of[begin + i];
  }
}

}  // namespace fullshard::ops
