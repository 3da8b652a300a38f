// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/unicode/utf8.h"

#include <cstring>

namespace fullshard::text {
namespace {

// Bytes that begin a character, as far as they are valid: `length` of them, `complete` or cut
// short.
struct Beginning {
  size_t length = 1;
  bool complete = false;
};

Beginning beginning_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {};
  const size_t whole = utf8_length(text[0]);
  // The limits of the second byte also exclude overlong forms, surrogates and code points above
  // U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  size_t length = 1;
  while (length < whole && length < text.size()) {
    const unsigned next = byte(length);
    if (next < (length == 1 ? low : 0x80) || next > (length == 1 ? high : 0xBF)) break;
    ++length;
  }
  return {length, length == whole};
}

size_t ascii_length(std::string_view text) {
  size_t length = 0;
  while (length + 8 <= text.size()) {
    uint64_t eight;
    std::memcpy(&eight, text.data() + length, 8);
    if ((eight & 0x8080808080808080U) != 0) break;
    length += 8;
  }
  while (length < text.size() && static_cast<unsigned char>(text[length]) < 0x80) ++length;
  return length;
}

}  // namespace

void append_utf8(std::string& text, uint32_t character) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80U | ((character >> shift) & 0x3FU));
  };
  if (character < 0x80) {
    text += static_cast<char>(character);
  } else if (character < 0x800) {
    text += static_cast<char>(0xC0U | (character >> 6));
    tail(0);
  } else if (character < 0x10000) {
    text += static_cast<char>(0xE0U | (character >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0U | (character >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t valid_prefix(std::string_view text) {
  if (text.empty()) return 0;
  const Beginning beginning = beginning_of(text);
  return beginning.complete ? beginning.length : 0;
}

size_t valid_utf8_bytes(std::string_view text) {
  for (size_t i = ascii_length(text); i < text.size(); i += ascii_length(text.substr(i))) {
    const size_t length = valid_prefix(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return text.size();
}

bool is_valid_utf8(std::string_view text) { return valid_utf8_bytes(text) == text.size(); }

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Beginning beginning = beginning_of(text.substr(i));
    if (beginning.complete) {
      result.append(text.substr(i, beginning.length));
    } else {
      append_utf8(result, kReplacementCharacter);
    }
    i += beginning.length;
  }
  return result;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

}  // namespace fullshard::text
