// SPDX-License-Identifier: Apache-2.0
// Where a UTF-8 character ends (RFC 3629: shortest form, no surrogates, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <string_view>

namespace fullshard::base {

// How many bytes at the front of `text` are one character; 0 when it begins with none.
size_t utf8_character_length(std::string_view text);

// A byte that never begins a character.
inline bool continues_utf8_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace fullshard::base
