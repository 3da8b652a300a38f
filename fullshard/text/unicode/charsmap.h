// SPDX-License-Identifier: Apache-2.0
// sentencepiece's "precompiled charsmap": strings and what replaces them.
//
//   uint32 bytes of the trie, little-endian
//   the trie: a double array of uint32 (Darts-clone)
//   the replacements, each ended by a zero byte; the trie's values are offsets into them
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::text {

class Charsmap {
 public:
  // Throws Error of the kind input when the blob is cut short or contains invalid UTF-8.
  explicit Charsmap(std::string_view blob);

  struct Rule {
    size_t length = 0;  // bytes at the beginning of the text that it replaces
    std::string_view replacement;
  };

  // The rules for the shortest and for the longest beginning of the text.
  std::optional<Rule> shortest(std::string_view text) const { return find(text, true); }
  std::optional<Rule> longest(std::string_view text) const { return find(text, false); }

 private:
  std::optional<Rule> find(std::string_view text, bool stop_at_first) const;
  std::string_view replacement(uint32_t offset) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace fullshard::text
