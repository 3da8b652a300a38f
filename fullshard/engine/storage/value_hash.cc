// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/value_hash.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "fullshard/base/bytes.h"

namespace fullshard::engine {
namespace {

// Blocks are hashed apart, so that threads share the work and their number changes nothing.
constexpr int64_t kHashBlock = kMiB;
constexpr size_t kLanes = 4;  // independent chains keep the multiplier busy
constexpr uint64_t kOddFactor = 0x9e3779b97f4a7c15;

// The last round of splitmix64: every bit of the input reaches every bit of the output.
uint64_t scramble(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

uint64_t absorb(uint64_t state, uint64_t word) {
  return std::rotl(state ^ word, 29) * kOddFactor + 1;
}

uint64_t hash_block(const char* bytes, size_t count) {
  std::array<uint64_t, kLanes> lanes = {1, 2, 3, 4};
  std::array<uint64_t, kLanes> words;
  size_t done = 0;
  for (; done + sizeof words <= count; done += sizeof words) {
    std::memcpy(words.data(), bytes + done, sizeof words);
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = absorb(lanes[lane], words[lane]);
  }
  words = {};
  std::memcpy(words.data(), bytes + done, count - done);
  for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = absorb(lanes[lane], words[lane]);
  return hash_numbers(lanes) ^ scramble(count);
}

}  // namespace

uint64_t hash_numbers(std::span<const uint64_t> numbers) {
  uint64_t state = kOddFactor;
  for (const uint64_t number : numbers) state = scramble(absorb(state, number));
  return state;
}

uint64_t hash_values(const at::Tensor& tensor) {
  const auto values = tensor.detach().cpu().contiguous();
  const auto bytes = static_cast<int64_t>(values.nbytes());
  const auto* begin = static_cast<const char*>(values.const_data_ptr());
  std::vector<uint64_t> blocks(static_cast<size_t>((bytes + kHashBlock - 1) / kHashBlock));
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t count = std::min(kHashBlock, bytes - i * kHashBlock);
      blocks[static_cast<size_t>(i)] =
          hash_block(begin + i * kHashBlock, static_cast<size_t>(count));
    }
  });
  return hash_numbers(blocks);
}

}  // namespace fullshard::engine
