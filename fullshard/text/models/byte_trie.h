// SPDX-License-Identifier: Apache-2.0
// Strings that share their beginnings, each with a number: finds those that a text begins with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fullshard/text/unicode/flat_table.h"

namespace fullshard::text {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNowhere = ~uint32_t{0};
  static constexpr int32_t kNone = -1;

  struct Match {
    int32_t value = kNone;
    size_t length = 0;
  };

  // The last value of a string wins.
  void insert(std::string_view text, int32_t value);

  bool empty() const { return edges_.size() == 0; }
  uint32_t child(uint32_t node, char byte) const {
    const uint32_t* found = edges_.find(key(node, byte));
    return found == nullptr ? kNowhere : *found;
  }
  int32_t value(uint32_t node) const { return values_[node]; }

  // The node that `text` leads to from `from`: kNowhere if no string begins like this.
  uint32_t walk(std::string_view text, uint32_t from = kRoot) const;
  // The longest string that `text` begins with, starting at `from`.
  Match longest(std::string_view text, uint32_t from = kRoot) const;
  // Whether some string begins with this byte.
  bool begins(char byte) const { return first_bytes_[static_cast<unsigned char>(byte)]; }

 private:
  static uint64_t key(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  FlatTable<uint32_t> edges_;
  std::vector<int32_t> values_ = {kNone};
  std::array<bool, 256> first_bytes_{};
};

}  // namespace fullshard::text
