// SPDX-License-Identifier: Apache-2.0
// Splits a template into text, {{ expressions }} and {% statements %}, and those into words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"

namespace fullshard::text::chat {

enum class WordKind { name, string, integer, number, symbol, end };

struct TemplateWord {
  WordKind kind = WordKind::end;
  std::string text = {};  // a string's text: without quotes, escapes resolved
  int64_t integer = 0;
  double number = 0;

  bool is_symbol(std::string_view symbol) const {
    return kind == WordKind::symbol && text == symbol;
  }
  bool is_name(std::string_view name) const { return kind == WordKind::name && text == name; }
};

enum class PartKind { text, expression, statement };

struct TemplatePart {
  PartKind kind = PartKind::text;
  std::string text = {};
  std::vector<TemplateWord> words = {};  // the last one is `end`
  int64_t line = 1;
};

// White space around statements is handled as transformers configures Jinja, with trim_blocks and
// lstrip_blocks, and {%- -%}, {{- -}}, {#- -#} where the template has them. Comments are removed.
std::vector<TemplatePart> template_parts(std::string_view text);

inline constexpr size_t kMostSaidBytes = 2000;  // of a message

// Throws the error for something in a template that is not possible; the text names the line.
// Quotes from the template and from messages are made printable.
template <class... Values>
[[noreturn]] void refuse_template(int64_t line, fmt::format_string<Values...> format,
                                  Values&&... values) {
  fail_as(ErrorKind::input, "chat_template, line {}: {}", line,
          base::printable(fmt::format(format, std::forward<Values>(values)...), kMostSaidBytes));
}

}  // namespace fullshard::text::chat
