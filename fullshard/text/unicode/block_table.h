// SPDX-License-Identifier: Apache-2.0
// One value per Unicode character, in two steps: equal blocks of 128 characters are stored once.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace fullshard::text {

template <class Value>
class BlockTable {
 public:
  static constexpr uint32_t kCharacters = 0x110000;

  explicit BlockTable(const std::vector<Value>& values) {
    std::map<std::vector<Value>, uint16_t> known;
    for (uint32_t begin = 0; begin < kCharacters; begin += kBlock) {
      const std::vector<Value> block(values.begin() + begin, values.begin() + begin + kBlock);
      const auto [found, is_new] = known.emplace(block, static_cast<uint16_t>(known.size()));
      if (is_new) blocks_.insert(blocks_.end(), block.begin(), block.end());
      index_[begin / kBlock] = found->second;
    }
  }

  Value operator[](uint32_t character) const {
    return blocks_[index_[character / kBlock] * kBlock + character % kBlock];
  }

 private:
  static constexpr uint32_t kBlock = 128;
  std::array<uint16_t, kCharacters / kBlock> index_{};
  std::vector<Value> blocks_;
};

}  // namespace fullshard::text
