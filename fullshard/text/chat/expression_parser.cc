// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "fullshard/text/chat/expression.h"

namespace fullshard::text::chat {
namespace {

constexpr int kMostNested = 100;  // deeper than any template, and safe for the stack
// The most parts of one expression: a chain of operators is a tree as deep as the chain is long.
constexpr int kMostParts = 4096;

}  // namespace

TemplateWord ExpressionParser::take() {
  const TemplateWord word = words_[at_];
  if (word.kind != WordKind::end) ++at_;
  return word;
}

bool ExpressionParser::take_symbol(std::string_view symbol) {
  if (!peek().is_symbol(symbol)) return false;
  ++at_;
  return true;
}

bool ExpressionParser::take_name(std::string_view name) {
  if (!peek().is_name(name)) return false;
  ++at_;
  return true;
}

void ExpressionParser::refuse_word() const {
  if (peek().kind == WordKind::end) refuse_template(line_, "unexpected end of the tag");
  refuse_template(line_, "unexpected '{}'", peek().text);
}

void ExpressionParser::expect_symbol(std::string_view symbol) {
  if (take_symbol(symbol)) return;
  refuse_template(line_, "expected '{}'", symbol);
}

std::string ExpressionParser::expect_name(const char* what) {
  if (peek().kind != WordKind::name) refuse_template(line_, "expected {}", what);
  return take().text;
}

void ExpressionParser::expect_end() {
  if (peek().kind != WordKind::end) refuse_word();
}

ExpressionPointer ExpressionParser::make(ExpressionKind kind, std::string name) {
  if (++num_parts_ > kMostParts) refuse_template(line_, "an expression is too long");
  auto result = std::make_unique<Expression>();
  result->kind = kind;
  result->line = line_;
  result->name = std::move(name);
  return result;
}

ExpressionPointer ExpressionParser::binary(std::string name, ExpressionPointer left,
                                           ExpressionPointer right) {
  auto result = make(ExpressionKind::binary, std::move(name));
  result->children.push_back(std::move(left));
  result->children.push_back(std::move(right));
  return result;
}

ExpressionPointer ExpressionParser::parse() {
  auto value = parse_simple();
  if (!take_name("if")) return value;
  auto result = make(ExpressionKind::condition);
  result->children.push_back(std::move(value));
  result->children.push_back(either());
  result->children.push_back(take_name("else") ? parse() : nullptr);
  return result;
}

ExpressionPointer ExpressionParser::parse_simple() {
  if (++depth_ > kMostNested) refuse_template(line_, "an expression is nested too deeply");
  auto value = either();
  --depth_;
  return value;
}

ExpressionPointer ExpressionParser::either() {
  auto left = both();
  while (take_name("or")) left = binary("or", std::move(left), both());
  return left;
}

ExpressionPointer ExpressionParser::both() {
  auto left = negation();
  while (take_name("and")) left = binary("and", std::move(left), negation());
  return left;
}

ExpressionPointer ExpressionParser::negation() {
  if (!take_name("not")) return comparison();
  if (++depth_ > kMostNested) refuse_template(line_, "an expression is nested too deeply");
  auto result = make(ExpressionKind::unary, "not");
  result->children.push_back(negation());
  --depth_;
  return result;
}

std::string ExpressionParser::take_comparison() {
  constexpr std::array<std::string_view, 6> kSymbols = {"==", "!=", "<=", ">=", "<", ">"};
  if (take_name("in")) return "in";
  if (peek().is_name("not") && words_[at_ + 1].is_name("in")) {
    at_ += 2;
    return "not in";
  }
  for (const auto symbol : kSymbols) {
    if (take_symbol(symbol)) return std::string(symbol);
  }
  return {};
}

ExpressionPointer ExpressionParser::comparison() {
  auto first = joined();
  auto name = take_comparison();
  if (name.empty()) return first;
  auto result = make(ExpressionKind::compare);
  result->children.push_back(std::move(first));
  for (; !name.empty(); name = take_comparison()) {
    result->names.push_back(name);
    result->children.push_back(joined());
  }
  return result;
}

ExpressionPointer ExpressionParser::joined() {
  auto left = sum();
  while (take_symbol("~")) left = binary("~", std::move(left), sum());
  return left;
}

ExpressionPointer ExpressionParser::sum() {
  auto left = product();
  while (peek().is_symbol("+") || peek().is_symbol("-")) {
    const std::string symbol = take().text;
    left = binary(symbol, std::move(left), product());
  }
  return left;
}

ExpressionPointer ExpressionParser::product() {
  auto left = signed_value();
  while (peek().is_symbol("*") || peek().is_symbol("/") || peek().is_symbol("//") ||
         peek().is_symbol("%")) {
    const std::string symbol = take().text;
    left = binary(symbol, std::move(left), signed_value());
  }
  return left;
}

ExpressionPointer ExpressionParser::signed_value() { return filtered(without_filter()); }

// A sign binds tighter than a filter: -3 | abs is 3.
ExpressionPointer ExpressionParser::without_filter() {
  if (!peek().is_symbol("-") && !peek().is_symbol("+")) return postfix(primary());
  if (++depth_ > kMostNested) refuse_template(line_, "an expression is nested too deeply");
  auto result = make(ExpressionKind::unary, take().text);
  result->children.push_back(without_filter());
  --depth_;
  return result;
}

ExpressionPointer ExpressionParser::postfix(ExpressionPointer value) {
  while (true) {
    if (take_symbol(".")) {
      value = after_dot(std::move(value));
    } else if (take_symbol("[")) {
      value = subscript(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPointer ExpressionParser::filtered(ExpressionPointer value) {
  while (true) {
    if (take_symbol("|")) {
      value = filter(std::move(value));
    } else if (take_name("is")) {
      value = test(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPointer ExpressionParser::after_dot(ExpressionPointer value) {
  auto result = make(ExpressionKind::attribute, expect_name("a name after '.'"));
  result->children.push_back(std::move(value));
  if (take_symbol("(")) {
    result->kind = ExpressionKind::method;
    arguments(*result);
  }
  return result;
}

ExpressionPointer ExpressionParser::subscript(ExpressionPointer value) {
  auto result = make(ExpressionKind::item);
  result->children.push_back(std::move(value));
  const auto part = [&]() -> ExpressionPointer {
    return peek().is_symbol(":") || peek().is_symbol("]") ? nullptr : parse();
  };
  result->children.push_back(part());
  while (take_symbol(":")) {
    result->kind = ExpressionKind::slice;
    result->children.push_back(part());
  }
  expect_symbol("]");
  if (result->kind == ExpressionKind::item && !result->children[1]) refuse_word();
  if (result->children.size() > 4) refuse_template(line_, "a slice has too many parts");
  if (result->kind == ExpressionKind::slice) result->children.resize(4);
  return result;
}

ExpressionPointer ExpressionParser::filter(ExpressionPointer value) {
  auto result = make(ExpressionKind::filter, expect_name("the name of a filter after '|'"));
  result->children.push_back(std::move(value));
  if (take_symbol("(")) arguments(*result);
  return result;
}

ExpressionPointer ExpressionParser::test(ExpressionPointer value) {
  auto result = make(ExpressionKind::test);
  result->is_negated = take_name("not");
  result->name = expect_name("the name of a test after 'is'");
  result->children.push_back(std::move(value));
  if (take_symbol("(")) {
    arguments(*result);
  } else if (begins_value()) {  // x is divisibleby 3
    result->children.push_back(postfix(primary()));
  }
  return result;
}

bool ExpressionParser::begins_value() const {
  const TemplateWord& word = peek();
  constexpr std::array<std::string_view, 6> kOperators = {"and", "or", "not", "if", "else", "is"};
  if (word.kind == WordKind::name) {
    return std::ranges::find(kOperators, word.text) == kOperators.end() && word.text != "in";
  }
  return word.kind == WordKind::string || word.kind == WordKind::integer ||
         word.kind == WordKind::number || word.is_symbol("[");
}

void ExpressionParser::arguments(Expression& call) {
  while (!take_symbol(")")) {
    if (peek().kind == WordKind::name && words_[at_ + 1].is_symbol("=")) {
      const std::string name = take().text;
      ++at_;
      call.named.emplace_back(name, parse());
    } else {
      call.children.push_back(parse());
    }
    if (!take_symbol(",") && !peek().is_symbol(")")) refuse_word();
  }
}

ExpressionPointer ExpressionParser::list_until(std::string_view closing) {
  auto result = make(ExpressionKind::list);
  while (!take_symbol(closing)) {
    result->children.push_back(parse());
    if (!take_symbol(",") && !peek().is_symbol(closing)) refuse_word();
  }
  return result;
}

ExpressionPointer ExpressionParser::map() {
  auto result = make(ExpressionKind::map);
  while (!take_symbol("}")) {
    if (peek().kind != WordKind::string) {
      refuse_template(line_, "keys of a mapping must be strings");
    }
    result->names.push_back(take().text);
    expect_symbol(":");
    result->children.push_back(parse());
    if (!take_symbol(",") && !peek().is_symbol("}")) refuse_word();
  }
  return result;
}

ExpressionPointer ExpressionParser::primary() {
  if (take_symbol("(")) {
    auto value = parse();
    if (take_symbol(")")) return value;
    expect_symbol(",");
    auto rest = list_until(")");
    rest->kind = ExpressionKind::tuple;
    rest->children.insert(rest->children.begin(), std::move(value));
    return rest;
  }
  if (take_symbol("[")) return list_until("]");
  if (take_symbol("{")) return map();
  const TemplateWord word = peek();
  if (word.kind == WordKind::symbol || word.kind == WordKind::end) refuse_word();
  take();
  auto result = make(ExpressionKind::literal);
  if (word.kind == WordKind::string) {
    result->literal = word.text;
    while (peek().kind == WordKind::string)
      result->literal = result->literal.string() + take().text;
  } else if (word.kind == WordKind::integer) {
    result->literal = word.integer;
  } else if (word.kind == WordKind::number) {
    result->literal = word.number;
  } else if (word.text == "true" || word.text == "True") {
    result->literal = true;
  } else if (word.text == "false" || word.text == "False") {
    result->literal = false;
  } else if (word.text == "none" || word.text == "None") {
    result->literal = nullptr;
  } else {
    result->kind = ExpressionKind::name;
    result->name = word.text;
    if (take_symbol("(")) {
      result->kind = ExpressionKind::call;
      arguments(*result);
    }
  }
  return result;
}

}  // namespace fullshard::text::chat
