// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/charts/html_text.h"

#include <cstdint>

#include "fullshard/base/utf8_character.h"

namespace fullshard::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";

// The length of a terminal's escape sequence (ESC [ … letter) at the front; 1 for a lone ESC.
size_t escape_length(std::string_view text) {
  if (text.size() < 2 || text[1] != '[') return 1;
  size_t end = 2;
  while (end < text.size() && text[end] >= 0x20 && text[end] < 0x40) ++end;
  return end < text.size() ? end + 1 : end;
}

std::string_view entity_of(char byte) {
  switch (byte) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

bool is_control(char byte) {
  return (static_cast<uint8_t>(byte) < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    size_t length = base::utf8_character_length(text);
    if (text[0] == '\x1b') {
      length = escape_length(text);
    } else if (length == 0) {
      escaped += kReplacement;
      length = 1;
    } else if (const auto entity = entity_of(text[0]); !entity.empty()) {
      escaped += entity;
    } else if (!is_control(text[0])) {
      escaped += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return escaped;
}

std::string shortened(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  while (bytes > 0 && base::continues_utf8_character(text[bytes])) --bytes;
  return std::string(text.substr(0, bytes)) + std::string(kEllipsis);
}

}  // namespace fullshard::report
