// SPDX-License-Identifier: Apache-2.0
// Expressions of a template: parsed once, evaluated often.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/text/chat/render_state.h"
#include "fullshard/text/chat/template_tokens.h"
#include "fullshard/text/chat/value.h"

namespace fullshard::text::chat {

enum class ExpressionKind {
  literal,
  name,
  list,       // children
  tuple,      // children
  map,        // names and children
  attribute,  // children[0].name
  item,       // children[0][children[1]]
  slice,    // children[0][children[1]:children[2]:children[3]], of which the last three may be null
  call,     // name(children) of a function, with named arguments
  method,   // children[0].name(the other children)
  filter,   // children[0] | name(the other children), with named arguments
  test,     // children[0] is name, negated or not
  unary,    // name: "-", "+", "not"
  binary,   // name: an operator
  compare,  // children with names, operators, between them: a < b < c
  condition,  // children[0] if children[1] else children[2], which may be null
};

struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  int64_t line = 1;
  std::string name = {};
  Value literal = {};
  bool is_negated = false;
  std::vector<std::unique_ptr<Expression>> children = {};
  std::vector<std::string> names = {};  // of a map's entries, or operators of comparisons
  std::vector<std::pair<std::string, std::unique_ptr<Expression>>> named = {};
};
using ExpressionPointer = std::unique_ptr<Expression>;

// Parses the words of one tag.
class ExpressionParser {
 public:
  ExpressionParser(const std::vector<TemplateWord>& words, int64_t line, size_t first = 0)
      : words_(words), line_(line), at_(first) {}

  ExpressionPointer parse();  // the next expression, with its filters and conditions
  // Without a condition at its end, as after the "in" of a for.
  ExpressionPointer parse_simple();

  const TemplateWord& peek() const { return words_[at_]; }
  TemplateWord take();
  bool take_symbol(std::string_view symbol);
  bool take_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  std::string expect_name(const char* what);
  void expect_end();

 private:
  using Level = ExpressionPointer (ExpressionParser::*)();
  ExpressionPointer make(ExpressionKind kind, std::string name = {});
  ExpressionPointer binary(std::string name, ExpressionPointer left, ExpressionPointer right);
  ExpressionPointer either();
  ExpressionPointer both();
  ExpressionPointer negation();
  ExpressionPointer comparison();
  std::string take_comparison();  // empty: there is none
  ExpressionPointer joined();
  ExpressionPointer sum();
  ExpressionPointer product();
  ExpressionPointer signed_value();
  ExpressionPointer without_filter();
  ExpressionPointer postfix(ExpressionPointer value);
  ExpressionPointer filtered(ExpressionPointer value);
  ExpressionPointer primary();
  ExpressionPointer list_until(std::string_view closing);
  ExpressionPointer map();
  ExpressionPointer after_dot(ExpressionPointer value);
  ExpressionPointer subscript(ExpressionPointer value);
  ExpressionPointer filter(ExpressionPointer value);
  ExpressionPointer test(ExpressionPointer value);
  bool begins_value() const;
  void arguments(Expression& call);
  [[noreturn]] void refuse_word() const;

  const std::vector<TemplateWord>& words_;
  int64_t line_;
  size_t at_;
  int depth_ = 0, num_parts_ = 0;
};

// The names that a template sees: innermost first. Borrows the state and the scope around it.
class TemplateScope {
 public:
  explicit TemplateScope(RenderState& state) : outer_(nullptr), state_(state) {}
  explicit TemplateScope(const TemplateScope* outer) : outer_(outer), state_(outer->state_) {}
  RenderState& state() const { return state_; }
  // The names that macros see: those of the template itself.
  const TemplateScope& outermost() const { return outer_ == nullptr ? *this : outer_->outermost(); }
  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value) { names_[name] = std::move(value); }

 private:
  const TemplateScope* outer_;
  RenderState& state_;
  std::map<std::string, Value> names_;
};

Value evaluate(const Expression& expression, const TemplateScope& scope);

// The text of a macro: {% macro name(a, b=1) %} … {% endmacro %}.
Value call_macro(const TemplateNode& macro, const ValueList& arguments, const ValueEntries& named,
                 const TemplateScope& scope, int64_t line);

// Methods of strings are `name(arguments)`; filters and functions are found by name. Unknown ones
// are refused.
Value call_method(const Value& value, const std::string& name, const ValueList& arguments,
                  RenderState& state, int64_t line);
Value call_filter(const Value& value, const std::string& name, const ValueList& arguments,
                  const ValueEntries& named, RenderState& state, int64_t line);
Value call_function(const std::string& name, const ValueList& arguments, const ValueEntries& named,
                    RenderState& state, int64_t line);
bool passes_test(const Value& value, const std::string& name, const ValueList& arguments,
                 RenderState& state, int64_t line);

}  // namespace fullshard::text::chat
