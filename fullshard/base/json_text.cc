// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/json_text.h"

#include <algorithm>

namespace fullshard::base {
namespace {

// `byte` is counted from 1. Of a text of one line only the column is told.
[[noreturn]] void refuse_at(std::string_view text, size_t byte, const std::string& what) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const size_t line = 1 + static_cast<size_t>(std::ranges::count(before, '\n'));
  const size_t column = before.size() - line_start + 1;
  const bool is_one_line = text.find('\n') == std::string_view::npos;
  throw JsonError(fmt::format("{} at {}column {}", what,
                              is_one_line ? "" : fmt::format("line {}, ", line), column),
                  line, column);
}

// The end of the string that begins at `start`, its closing quote or the end of the text.
size_t end_of_string(std::string_view text, size_t start) {
  size_t at = start + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at, text.size());
}

}  // namespace

void check_json_depth(std::string_view text) {
  int depth = 0;
  for (size_t at = text.find_first_of("\"[]{}"); at != std::string_view::npos;
       at = text.find_first_of("\"[]{}", at + 1)) {
    switch (text[at]) {
      case '"':
        at = end_of_string(text, at);
        break;
      case ']':
      case '}':
        --depth;
        break;
      default:
        if (++depth <= kMostJsonDepth) break;
        refuse_at(text, at + 1, fmt::format("is nested more than {} deep", kMostJsonDepth));
    }
  }
}

void refuse_json(std::string_view text, size_t byte) { refuse_at(text, byte, "is not valid JSON"); }

void refuse_json_number() { throw JsonError("holds a number beyond the range of fp64", 1, 1); }

}  // namespace fullshard::base
