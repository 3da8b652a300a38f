// SPDX-License-Identifier: Apache-2.0
// A template cut into text, {{ expressions }} and {% statements %}, and those into words.
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
  std::string text = {};  // of a string: without quotes, escapes resolved
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

// Whitespace around statements is as transformers sets Jinja up: trim_blocks and lstrip_blocks, and
// {%- -%}, {{- -}}, {#- -#} where the template says so. Comments are gone.
std::vector<TemplatePart> template_parts(std::string_view text);

inline constexpr size_t kMostSaidBytes = 2000;  // of a message

// What a template says that cannot be done; the text names the line. What it quotes of the template
// and of messages is made printable.
template <class... Values>
[[noreturn]] void refuse_template(int64_t line, fmt::format_string<Values...> format,
                                  Values&&... values) {
  fail_as(ErrorKind::input, "chat_template, line {}: {}", line,
          base::printable(fmt::format(format, std::forward<Values>(values)...), kMostSaidBytes));
}

}  // namespace fullshard::text::chat
