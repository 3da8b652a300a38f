// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/utf8_character.h"

#include <cstdint>

namespace fullshard::base {

size_t utf8_character_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!continues_utf8_character(text[i])) return 0;
  }
  const auto second = static_cast<uint8_t>(text[1]);
  const bool is_long_form = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_beyond = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return is_long_form || is_beyond ? 0 : length;
}

}  // namespace fullshard::base
