// SPDX-License-Identifier: Apache-2.0
// The statements of a template as a tree, and the code that renders it as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullshard/text/chat/expression.h"

namespace fullshard::text::chat {

enum class TemplateNodeKind {
  text,
  print,
  set,
  condition,
  loop,
  leave_loop,
  next_in_loop,
  macro,
  generation,  // transformers' mark around the model's own text
};

// Bytes of a text from `begin` up to `end`.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;

  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

struct TemplateNode {
  TemplateNodeKind kind = TemplateNodeKind::text;
  int64_t line = 1;
  std::string text = {};                // of a text
  ExpressionPointer expression = {};    // printed, set, or looped over
  std::vector<std::string> names = {};  // set, or given values by a loop: "a", or "ns", "attribute"
  bool sets_attribute = false;
  ExpressionPointer filter = {};  // the condition of a "for … if"
  // A macro's parameters follow its name in `names`; these are their defaults, null if there is
  // none.
  std::vector<ExpressionPointer> defaults = {};
  // A condition: each `if` and `elif` with its body; an else has no test.
  struct Branch {
    ExpressionPointer test = {};
    std::vector<TemplateNode> body = {};
  };
  std::vector<Branch> branches = {};
  std::vector<TemplateNode> body = {};
  std::vector<TemplateNode> otherwise = {};  // the else of a loop over nothing
};

std::vector<TemplateNode> parse_template(std::string_view text);

struct RenderedText {
  std::string text = {};
  std::vector<TextSpan> generated = {};  // inside {% generation %}, in order
};
RenderedText render_nodes(const std::vector<TemplateNode>& nodes, TemplateScope& scope);

// Whether any of them contains {% generation %}.
bool marks_generation(const std::vector<TemplateNode>& nodes);

}  // namespace fullshard::text::chat
