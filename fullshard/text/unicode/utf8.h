// SPDX-License-Identifier: Apache-2.0
// UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fullshard::text {

inline constexpr uint32_t kReplacementCharacter = 0xFFFD;

// The length of a character of valid text, from its first byte.
inline size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character at `position` of valid text, which must not end there; moves `position` after it.
inline uint32_t next_character(std::string_view text, size_t& position) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data()) + position;
  const uint32_t first = bytes[0];
  if (first < 0x80) {
    position += 1;
    return first;
  }
  if (first < 0xE0) {
    position += 2;
    return (first & 0x1F) << 6 | (bytes[1] & 0x3F);
  }
  if (first < 0xF0) {
    position += 3;
    return (first & 0x0F) << 12 | (bytes[1] & 0x3F) << 6 | (bytes[2] & 0x3F);
  }
  position += 4;
  return (first & 0x07) << 18 | (bytes[1] & 0x3F) << 12 | (bytes[2] & 0x3F) << 6 |
         (bytes[3] & 0x3F);
}

// The beginning of the character before `position`; valid text, position > 0.
inline size_t previous_begin(std::string_view text, size_t position) {
  do {
    --position;
  } while ((static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  return position;
}

void append_utf8(std::string& text, uint32_t character);

// How many of the first bytes form one valid character, or 0.
size_t valid_prefix(std::string_view text);

// How many bytes from the beginning are valid; all of them if the text is valid.
size_t valid_utf8_bytes(std::string_view text);
bool is_valid_utf8(std::string_view text);

// Replaces each longest beginning of an incomplete character by one U+FFFD, as Python's
// errors="replace" and Rust's from_utf8_lossy do.
std::string replace_invalid_utf8(std::string_view text);

size_t count_characters(std::string_view text);

}  // namespace fullshard::text
