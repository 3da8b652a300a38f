// SPDX-License-Identifier: Apache-2.0
// A shuffled order of n numbers that takes no memory.
#pragma once

#include <array>
#include <cstdint>

namespace fullshard::data {

// A bijection of [0, n), a function of (n, seed, epoch); any position is computed independently.
// Resumed runs rely on it: its values must not change.
class Permutation {
 public:
  Permutation(int64_t n, uint64_t seed, int64_t epoch);
  int64_t operator()(int64_t position) const;

 private:
  static constexpr int kRounds = 6;
  uint64_t encrypt(uint64_t value) const;

  uint64_t n_;
  int half_bits_;  // the network permutes [0, 4^half_bits_), the smallest that holds n
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace fullshard::data
