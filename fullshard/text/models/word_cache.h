// SPDX-License-Identifier: Apache-2.0
// Keeps the ids of earlier words.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "fullshard/text/models/text_hash.h"

namespace fullshard::text {

// Has a fixed size (2 MiB): a word is kept, with its ids, in one line of memory, and a newer one
// may replace it. Long words and words of many tokens are not kept. Not thread-safe.
class WordCache {
 public:
  WordCache() : lines_(kSets * 2) {}

  // Empty if the word is not there; the ids stay until the next keep().
  std::span<const int32_t> find(std::string_view word, uint64_t hash) const {
    if (word.size() > kLetters) return {};
    const Line* set = &lines_[(hash % kSets) * 2];
    for (int way = 0; way < 2; ++way) {
      const Line& line = set[way];
      if (line.tag == tag(hash) && line.length == word.size() &&
          std::memcmp(line.letters, word.data(), word.size()) == 0) {
        return {line.ids, line.count};
      }
    }
    return {};
  }

  void keep(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
    if (word.size() > kLetters || ids.size() > kIds || ids.empty()) return;
    Line* set = &lines_[(hash % kSets) * 2];
    set[1] = set[0];  // the older of the two is dropped
    Line& line = set[0];
    line.tag = tag(hash);
    line.length = static_cast<uint8_t>(word.size());
    line.count = static_cast<uint8_t>(ids.size());
    std::memcpy(line.letters, word.data(), word.size());
    std::memcpy(line.ids, ids.data(), ids.size_bytes());
  }

 private:
  static constexpr size_t kSets = 1 << 14;
  static constexpr size_t kLetters = 26;
  static constexpr size_t kIds = 8;

  struct alignas(64) Line {
    uint32_t tag = 0;
    uint8_t length = 0;
    uint8_t count = 0;  // 0: free
    char letters[kLetters];
    int32_t ids[kIds];
  };

  static uint32_t tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  std::vector<Line> lines_;
};

}  // namespace fullshard::text
