// SPDX-License-Identifier: Apache-2.0
// Random numbers that are a function of their purpose, not of what was drawn before: any rank can
// compute those of any example.
#pragma once

#include <cstdint>

namespace fullshard::data {

// The finaliser of splitmix64: a bijection whose every output bit depends on every input bit.
constexpr uint64_t mix_bits(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

constexpr uint64_t mix_bits(uint64_t first, uint64_t second) {
  return mix_bits(mix_bits(first + 0x9e3779b97f4a7c15u) ^ second);
}

// A separate splitmix64 stream for every (seed, epoch, number).
class CounterRandom {
 public:
  constexpr CounterRandom(uint64_t seed, uint64_t epoch, uint64_t number)
      : state_(mix_bits(mix_bits(seed, epoch), number)) {}

  constexpr uint64_t next() { return mix_bits(state_ += 0x9e3779b97f4a7c15u); }
  // In [0, bound); bound is below 2^32.
  constexpr uint64_t below(uint64_t bound) { return ((next() >> 32) * bound) >> 32; }
  // In [0, 1).
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace fullshard::data
