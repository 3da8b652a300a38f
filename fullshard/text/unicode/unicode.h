// SPDX-License-Identifier: Apache-2.0
// The kinds of characters, as the tokenizers package sees them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fullshard/text/unicode/block_table.h"

namespace fullshard::text {

// Bits of a character's mask; the order is that of tools/make_unicode_tables.py.
enum CharacterBits : uint16_t {
  kLetter = 1 << 0,       // \p{L}
  kNumber = 1 << 1,       // \p{N}
  kSpace = 1 << 2,        // White_Space
  kWord = 1 << 3,         // \w
  kPunctuation = 1 << 4,  // BERT's: \p{P} and ASCII's symbols
  kDropped = 1 << 5,      // removed by BERT: controls, formats, private use, U+0000, U+FFFD
  kNonspacing = 1 << 6,   // \p{Mn}
  kMark = 1 << 7,         // \p{M}
  kNumeric = 1 << 8,      // \p{N} of a newer Unicode
};

// Above the bits: the part of Unicode's grapheme cluster break that cluster.cc needs.
enum class ClusterClass : uint16_t {
  other,
  control,
  extend,
  joiner,
  spacing_mark,
  prepend,
  pictographic,
};

class Characters {
 public:
  // The only instance; made at its first use, never changed.
  static const Characters& get();

  uint16_t mask(uint32_t character) const { return masks_[character]; }
  bool has(uint32_t character, uint16_t bits) const { return (masks_[character] & bits) != 0; }
  ClusterClass cluster_class(uint32_t character) const {
    return static_cast<ClusterClass>(masks_[character] >> 9);
  }

 private:
  Characters();
  BlockTable<uint16_t> masks_;
};

// Character by character, without regard to neighbours: a final sigma is like any other.
std::string lowercase(std::string_view text);

}  // namespace fullshard::text
