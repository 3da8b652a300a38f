// SPDX-License-Identifier: Apache-2.0
// Random bits for rounding fp32 to bf16, so that the mean of many roundings is the value itself.
//
// They are a function of (seed, step, tensor, element) alone: whoever rounds an element gets the
// same bits, however tensors are cut and whatever the number of threads.
#pragma once

#include <cstdint>
#include <string_view>

#include "fullshard/base/host_device.h"

namespace fullshard::optim {

// FNV-1a.
constexpr uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  return hash;
}

// The finaliser of splitmix64 (Steele, Lea and Flood 2014).
FULLSHARD_HOST_DEVICE constexpr uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Of one tensor in one step.
struct RoundingKey {
  uint32_t first = 0;
  uint32_t second = 0;

  static constexpr RoundingKey of(uint64_t seed, int64_t step, uint64_t name_hash) {
    return of_tensor(of_step(seed, step), name_hash);
  }
  // In two parts, for those who know the step and find out the tensor later.
  static constexpr uint64_t of_step(uint64_t seed, int64_t step) {
    return mix(mix(seed) ^ static_cast<uint64_t>(step));
  }
  FULLSHARD_HOST_DEVICE static constexpr RoundingKey of_tensor(uint64_t of_step,
                                                               uint64_t name_hash) {
    const uint64_t key = mix(of_step ^ name_hash);
    return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  }
};

// 32-bit multiplications only, which vectorise on every instruction set; the constants are those
// of murmur3's finaliser.
FULLSHARD_HOST_DEVICE constexpr uint32_t mix32(uint32_t value) {
  value = (value ^ (value >> 16)) * 0x85ebca6bu;
  value = (value ^ (value >> 13)) * 0xc2b2ae35u;
  return value ^ (value >> 16);
}

FULLSHARD_HOST_DEVICE constexpr uint32_t random_bits(const RoundingKey& key, uint64_t element) {
  const auto low = static_cast<uint32_t>(element), high = static_cast<uint32_t>(element >> 32);
  return mix32(mix32(low ^ key.first) + (high ^ key.second));
}

// The bits of a bf16: up with the probability of the part that is cut off. Infinity stays, NaN
// becomes the usual one.
FULLSHARD_HOST_DEVICE constexpr uint16_t round_stochastically(float value, uint32_t random) {
  const auto bits = base::bits_of(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? 0x7fc0u : (bits + (random & 0xffffu)) >> 16);
}

}  // namespace fullshard::optim
