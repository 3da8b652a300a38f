// SPDX-License-Identifier: Apache-2.0
// The statements of a template as a tree, and the walk over it that writes its text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullshard/generation/chat/expression.h"

namespace fullshard::generation {

enum class TemplateNodeKind { text, print, set, condition, loop, leave_loop, next_in_loop, group };

struct TemplateNode {
  TemplateNodeKind kind = TemplateNodeKind::text;
  int64_t line = 1;
  std::string text = {};                // of a text
  ExpressionPointer expression = {};    // printed, set, or looped over
  std::vector<std::string> names = {};  // set, or given values by a loop: "a", or "ns", "attribute"
  bool sets_attribute = false;
  ExpressionPointer filter = {};  // for … if
  // Of a condition: each `if` and `elif` with its body, an else without a test.
  struct Branch {
    ExpressionPointer test = {};
    std::vector<TemplateNode> body = {};
  };
  std::vector<Branch> branches = {};
  std::vector<TemplateNode> body = {};
  std::vector<TemplateNode> otherwise = {};  // of a loop over nothing
};

std::vector<TemplateNode> parse_template(std::string_view text);

void render_nodes(const std::vector<TemplateNode>& nodes, TemplateScope& scope,
                  std::string& output);

}  // namespace fullshard::generation
