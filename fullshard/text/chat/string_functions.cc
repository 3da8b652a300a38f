// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/chat/string_functions.h"

#include <algorithm>
#include <array>

namespace fullshard::text::chat {
namespace {

size_t character_bytes(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const size_t expected = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  size_t bytes = 1;
  while (bytes < expected && at + bytes < text.size() && (text[at + bytes] & 0xC0) == 0x80) {
    ++bytes;
  }
  return bytes == expected ? bytes : 1;
}

// As str.isspace(): separators beyond ASCII count, and so do \x1c to \x1f.
bool is_white(std::string_view character) {
  if (character.size() == 1) {
    const char letter = character[0];
    return letter == ' ' || (letter >= '\t' && letter <= '\r') ||
           (letter >= '\x1c' && letter <= '\x1f');
  }
  constexpr std::array<std::string_view, 18> kWide = {
      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005",
      "\u2006", "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f"};
  return character == "\u3000" || std::ranges::find(kWide, character) != kWide.end();
}

template <class IsStripped>
std::string without_ends(std::string_view text, Side side, const IsStripped& is_stripped) {
  const auto letters = characters_of(text);
  size_t begin = 0, end = letters.size();
  while (side != Side::right && begin < end && is_stripped(letters[begin])) ++begin;
  while (side != Side::left && end > begin && is_stripped(letters[end - 1])) --end;
  std::string result;
  for (size_t i = begin; i < end; ++i) result += letters[i];
  return result;
}

}  // namespace

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> letters;
  for (size_t at = 0; at < text.size(); at += letters.back().size()) {
    letters.emplace_back(text.substr(at, character_bytes(text, at)));
  }
  return letters;
}

int64_t num_characters(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += character_bytes(text, at)) ++count;
  return count;
}

std::string stripped(std::string_view text, Side side) {
  return without_ends(text, side, is_white);
}

std::string stripped(std::string_view text, std::string_view letters, Side side) {
  const auto set = characters_of(letters);
  return without_ends(text, side, [&](const std::string& letter) {
    return std::ranges::find(set, letter) != set.end();
  });
}

std::vector<std::string> split_at_space(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const std::string& letter : characters_of(text)) {
    if (!is_white(letter)) {
      parts.back() += letter;
    } else if (!parts.back().empty()) {
      parts.emplace_back();
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view by, int64_t most,
                                  Side from) {
  std::vector<std::string> parts;
  for (; most != 0; --most) {
    const size_t found = from == Side::right ? text.rfind(by) : text.find(by);
    if (found == std::string_view::npos) break;
    if (from == Side::right) {
      parts.emplace_back(text.substr(found + by.size()));
      text = text.substr(0, found);
    } else {
      parts.emplace_back(text.substr(0, found));
      text.remove_prefix(found + by.size());
    }
  }
  parts.emplace_back(text);
  if (from == Side::right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(text.starts_with("\r\n") ? 2 : std::min<size_t>(1, text.size()));
  }
  return lines;
}

std::string with_replaced(std::string_view text, std::string_view old, std::string_view with) {
  if (old.empty()) return std::string(text);
  std::string result;
  for (size_t found; (found = text.find(old)) != std::string_view::npos;) {
    result += text.substr(0, found);
    result += with;
    text.remove_prefix(found + old.size());
  }
  result += text;
  return result;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char byte) { return (byte & 0x80) == 0; });
}

std::string with_case(std::string text, bool upper) {
  for (char& letter : text) {
    const char from = upper ? 'a' : 'A';
    if (letter >= from && letter < from + 26) letter = static_cast<char>(letter ^ 0x20);
  }
  return text;
}

std::string titled(std::string_view text) {
  constexpr std::string_view kBetween = " \t\n\r\f\v\x1c\x1d\x1e\x1f-({[<";
  std::string result = with_case(std::string(text), false);
  bool begins = true;
  for (char& letter : result) {
    if (begins && letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter ^ 0x20);
    begins = kBetween.find(letter) != std::string_view::npos;
  }
  return result;
}

std::string capitalised(std::string_view text, bool each_word) {
  std::string result = with_case(std::string(text), false);
  bool begins = true;
  for (char& letter : result) {
    const bool is_letter = letter >= 'a' && letter <= 'z';
    if (begins && is_letter) letter = static_cast<char>(letter ^ 0x20);
    begins = each_word && !is_letter;
  }
  return result;
}

}  // namespace fullshard::text::chat
