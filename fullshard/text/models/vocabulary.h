// SPDX-License-Identifier: Apache-2.0
// Tokens and their ids, in one block of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::text {

class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  // Replaces the id of a token that is there already. Ids below 2^31 / 4, gaps are allowed.
  void insert(std::string_view token, int32_t id);

  int32_t find(std::string_view token) const;  // kNone when absent
  std::optional<std::string_view> token_of(int32_t id) const;
  size_t count() const { return entries_.size(); }
  // One more than the largest id.
  int32_t size() const { return static_cast<int32_t>(by_id_.size()); }

  // Calls visit(token, id) for each token, in the order of insertion.
  template <class Visit>
  void each(const Visit& visit) const {
    for (const Entry& entry : entries_) visit(text(entry), entry.id);
  }

 private:
  struct Entry {
    uint64_t begin = 0;
    uint32_t length = 0;
    int32_t id = kNone;
    uint64_t hash = 0;
  };

  std::string_view text(const Entry& entry) const {
    return std::string_view(letters_).substr(entry.begin, entry.length);
  }
  size_t place(std::string_view token, uint64_t hash) const;
  void grow();

  std::string letters_;
  std::vector<Entry> entries_;
  std::vector<int32_t> slots_;  // indices of entries by hash; kNone: free
  std::vector<int32_t> by_id_;  // indices of entries
};

// "<0x0A>": the token of a byte in byte fallback.
std::string byte_token(uint8_t byte);
// The byte of such a token.
std::optional<uint8_t> byte_of_token(std::string_view token);

}  // namespace fullshard::text
