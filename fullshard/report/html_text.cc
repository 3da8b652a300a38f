#include "fullshard/report/html_text.h"

#include <cstdint>

namespace fullshard {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";

bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// How many bytes of `text` are one UTF-8 character; 0 when it begins with none (RFC 3629: shortest
// form, no surrogates, nothing above U+10FFFF).
size_t character_length(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!continues(text[i])) return 0;
  }
  const auto second = static_cast<uint8_t>(text[1]);
  const bool is_long_form = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_beyond = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return is_long_form || is_beyond ? 0 : length;
}

// The bytes of a terminal's escape sequence (ESC [ … letter) at the front; 1 for a lone ESC.
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
    size_t length = character_length(text);
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
  while (bytes > 0 && continues(text[bytes])) --bytes;
  return std::string(text.substr(0, bytes)) + std::string(kEllipsis);
}

}  // namespace fullshard
