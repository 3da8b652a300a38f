// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "fullshard/base/utf8_character.h"

namespace fullshard::base {
namespace {

constexpr std::string_view kEllipsis = "\xE2\x80\xA6";

// C0 and DEL; and C1 (U+0080 to U+009F), which terminals obey too.
bool is_control(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;
}

std::string escape_of(char byte) {
  switch (byte) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  }
}

std::string escapes_of(std::string_view bytes) {
  std::string escapes;
  for (const char byte : bytes) escapes += escape_of(byte);
  return escapes;
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string printed;
  while (!text.empty()) {
    const size_t length = utf8_character_length(text);
    const auto character = text.substr(0, std::max<size_t>(length, 1));
    const bool is_escaped = length == 0 || is_control(character);
    const std::string next = is_escaped ? escapes_of(character) : std::string(character);
    if (next.size() > max_bytes - printed.size()) return printed + std::string(kEllipsis);
    printed += next;
    text.remove_prefix(character.size());
  }
  return printed;
}

}  // namespace fullshard::base
