// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "fullshard/text/chat/template_node.h"

namespace fullshard::text::chat {
namespace {

constexpr int kMostBlocks = 100;  // the most blocks inside each other

class TemplateParser {
 public:
  explicit TemplateParser(const std::vector<TemplatePart>& parts) : parts_(parts) {}

  std::vector<TemplateNode> parse() {
    auto nodes = parse_until({});
    if (at_ < parts_.size()) {
      refuse_template(parts_[at_].line, "'{}' has no matching block", keyword(parts_[at_]));
    }
    return nodes;
  }

 private:
  static std::string keyword(const TemplatePart& part) {
    return part.kind == PartKind::statement ? part.words.front().text : "";
  }

  bool stops(const std::vector<std::string_view>& ends) const {
    const std::string word = keyword(parts_[at_]);
    const bool is_end = std::ranges::find(ends, word) != ends.end();
    constexpr std::array<std::string_view, 7> kClosing = {
        "endfor", "endif", "else", "elif", "endset", "endgeneration", "endmacro"};
    return is_end || std::ranges::find(kClosing, word) != kClosing.end();
  }

  // Parses up to a statement that ends or divides a block, which is left to the caller.
  std::vector<TemplateNode> parse_until(const std::vector<std::string_view>& ends) {
    std::vector<TemplateNode> nodes;
    for (; at_ < parts_.size() && !stops(ends);) nodes.push_back(parse_part());
    return nodes;
  }

  std::vector<TemplateNode> parse_block(const TemplatePart& opening,
                                        const std::vector<std::string_view>& ends) {
    if (++depth_ > kMostBlocks) refuse_template(opening.line, "blocks are nested too deeply");
    auto nodes = parse_until(ends);
    --depth_;
    const bool is_closed =
        at_ < parts_.size() && std::ranges::find(ends, keyword(parts_[at_])) != ends.end();
    if (!is_closed) {
      refuse_template(opening.line, "'{}' has no '{}'", keyword(opening), ends.front());
    }
    return nodes;
  }

  TemplateNode parse_part() {
    const TemplatePart& part = parts_[at_++];
    TemplateNode node;
    node.line = part.line;
    if (part.kind == PartKind::text) {
      node.text = part.text;
      return node;
    }
    if (part.kind == PartKind::expression) {
      node.kind = TemplateNodeKind::print;
      ExpressionParser words(part.words, part.line);
      node.expression = words.parse();
      words.expect_end();
      return node;
    }
    return parse_statement(part, std::move(node));
  }

  TemplateNode parse_statement(const TemplatePart& part, TemplateNode node) {
    ExpressionParser words(part.words, part.line, 1);
    const std::string word = keyword(part);
    if (word == "if") return parse_condition(part, std::move(node));
    if (word == "for") return parse_loop(part, words, std::move(node));
    if (word == "set") return parse_set(part, words, std::move(node));
    if (word == "break" || word == "continue") {
      node.kind = word == "break" ? TemplateNodeKind::leave_loop : TemplateNodeKind::next_in_loop;
      words.expect_end();
      return node;
    }
    if (word == "macro") return parse_macro(part, words, std::move(node));
    if (word == "generation") {
      node.kind = TemplateNodeKind::generation;
      node.body = parse_block(part, {"endgeneration"});
      ++at_;
      return node;
    }
    refuse_template(part.line,
                    "the statement '{}' is not supported; supported are if, for, set, macro, break "
                    "and continue",
                    word);
  }

  TemplateNode parse_condition(const TemplatePart& opening, TemplateNode node) {
    node.kind = TemplateNodeKind::condition;
    const TemplatePart* part = &opening;
    while (keyword(*part) != "endif") {
      TemplateNode::Branch branch;
      ExpressionParser words(part->words, part->line, 1);
      const bool is_else = keyword(*part) == "else";
      if (!is_else) branch.test = words.parse();
      words.expect_end();
      branch.body = is_else ? parse_block(opening, {"endif"})
                            : parse_block(opening, {"endif", "else", "elif"});
      node.branches.push_back(std::move(branch));
      part = &parts_[at_++];
    }
    return node;
  }

  TemplateNode parse_loop(const TemplatePart& opening, ExpressionParser& words, TemplateNode node) {
    node.kind = TemplateNodeKind::loop;
    do {
      node.names.push_back(words.expect_name("the name of a loop's variable"));
    } while (words.take_symbol(","));
    if (!words.take_name("in")) refuse_template(opening.line, "expected 'in' of the loop");
    node.expression = words.parse_simple();
    if (words.take_name("if")) node.filter = words.parse();
    words.expect_end();
    node.body = parse_block(opening, {"endfor", "else"});
    if (keyword(parts_[at_++]) == "else") {
      node.otherwise = parse_block(opening, {"endfor"});
      ++at_;
    }
    return node;
  }

  TemplateNode parse_macro(const TemplatePart& part, ExpressionParser& words, TemplateNode node) {
    node.kind = TemplateNodeKind::macro;
    node.names.push_back(words.expect_name("the name of a macro"));
    words.expect_symbol("(");
    while (!words.take_symbol(")")) {
      node.names.push_back(words.expect_name("the name of a macro's argument"));
      node.defaults.push_back(words.take_symbol("=") ? words.parse() : nullptr);
      if (!words.take_symbol(",") && !words.peek().is_symbol(")")) words.expect_symbol(")");
    }
    words.expect_end();
    node.body = parse_block(part, {"endmacro"});
    ++at_;
    return node;
  }

  TemplateNode parse_set(const TemplatePart& part, ExpressionParser& words, TemplateNode node) {
    node.kind = TemplateNodeKind::set;
    node.names.push_back(words.expect_name("the name of what is set"));
    if (words.take_symbol(".")) {
      node.sets_attribute = true;
      node.names.push_back(words.expect_name("the name of an attribute"));
    }
    if (words.take_symbol("=")) {
      node.expression = words.parse();
      words.expect_end();
      return node;
    }
    words.expect_end();
    node.body = parse_block(part, {"endset"});
    ++at_;
    return node;
  }

  const std::vector<TemplatePart>& parts_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::vector<TemplateNode> parse_template(std::string_view text) {
  const auto parts = template_parts(text);
  return TemplateParser(parts).parse();
}

}  // namespace fullshard::text::chat
