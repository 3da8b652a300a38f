// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/permutation.h"

#include <bit>
#include <cassert>

#include "fullshard/data/random.h"

namespace fullshard::data {

Permutation::Permutation(int64_t n, uint64_t seed, int64_t epoch)
    : n_(static_cast<uint64_t>(n)), half_bits_(1) {
  assert(n > 0);
  half_bits_ = (std::bit_width(n_ - 1) + 1) / 2;
  if (half_bits_ == 0) half_bits_ = 1;
  CounterRandom random(seed, static_cast<uint64_t>(epoch), 0);
  for (uint64_t& key : keys_) key = random.next();
}

// A Feistel network: each round is a bijection, whatever the round function.
uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (mix_bits(key ^ right) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

// Walks the cycle until it is back in [0, n): fewer than four steps on average, since the network's
// range is below 4 n.
int64_t Permutation::operator()(int64_t position) const {
  assert(position >= 0 && static_cast<uint64_t>(position) < n_);
  uint64_t value = static_cast<uint64_t>(position);
  do {
    value = encrypt(value);
  } while (value >= n_);
  return static_cast<int64_t>(value);
}

}  // namespace fullshard::data
