// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>

#include "fullshard/text/chat/expression.h"
#include "fullshard/text/chat/string_functions.h"

namespace fullshard::text::chat {
namespace {

// An index as in Python: counted from the end if it is negative.
std::optional<size_t> place_in(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  const int64_t place = index < 0 ? index + count : index;
  if (place < 0 || place >= count) return std::nullopt;
  return static_cast<size_t>(place);
}

// A missing key is undefined, as in Jinja; a key of a value that has no keys is an error.
Value item_of(const Value& value, const Value& key, RenderState& state, int64_t line) {
  if (value.is_undefined()) {
    refuse_template(line, "cannot read {} of an undefined value", key.text(state, line));
  }
  if (value.is_map() && key.is_string()) {
    const Value* found = value.find(key.string(), state, line);
    return found == nullptr ? Value() : *found;
  }
  if (value.is_list() && key.is_integer()) {
    const auto place = place_in(key.integer(), value.list().size());
    return place ? value.list()[*place] : Value();
  }
  if (value.is_string() && key.is_integer()) {
    const auto letters = characters_of(value.string());
    const auto place = place_in(key.integer(), letters.size());
    return place ? Value(letters[*place]) : Value();
  }
  return {};
}

// Python's rule for bounds of slices, in both directions.
int64_t bound_of(const Value& value, int64_t otherwise, int64_t size, int64_t stride) {
  if (value.is_undefined() || value.is_none()) return otherwise;
  const int64_t bound = value.integer();
  const int64_t least = stride < 0 ? -1 : 0, most = stride < 0 ? size - 1 : size;
  return std::clamp<int64_t>(bound < 0 ? bound + size : bound, least, most);
}

template <class Items>
Items sliced(const Items& items, const Value& first, const Value& last, int64_t stride) {
  const auto size = static_cast<int64_t>(items.size());
  const int64_t begin = bound_of(first, stride < 0 ? size - 1 : 0, size, stride);
  const int64_t end = bound_of(last, stride < 0 ? -1 : size, size, stride);
  Items result;
  for (int64_t i = begin; stride < 0 ? i > end : i < end; i += stride) {
    result.push_back(items[static_cast<size_t>(i)]);
  }
  return result;
}

bool is_bound(const Value& value) {
  return value.is_undefined() || value.is_none() || value.is_integer();
}

Value slice_of(const Value& value, const Value& first, const Value& last, const Value& step,
               int64_t line) {
  if (!value.is_list() && !value.is_string()) {
    refuse_template(line, "cannot slice {}", value.type_name());
  }
  if (!is_bound(first) || !is_bound(last) || !is_bound(step)) {
    refuse_template(line, "the bounds of a slice are not whole numbers");
  }
  const int64_t stride = step.is_integer() ? step.integer() : 1;
  constexpr int64_t kLongest = int64_t{1} << 32;  // keeps sums of places from overflowing
  if (stride == 0 || stride > kLongest || stride < -kLongest) {
    refuse_template(line, "unsupported slice step {}", stride);
  }
  if (value.is_list()) {
    ValueList items = sliced(value.list(), first, last, stride);
    return value.is_tuple() ? Value::tuple(std::move(items)) : Value(std::move(items));
  }
  std::string text;
  for (const std::string& letter : sliced(characters_of(value.string()), first, last, stride)) {
    text += letter;
  }
  return text;
}

bool contains(const Value& container, const Value& item, RenderState& state, int64_t line) {
  if (container.is_string() && item.is_string()) {
    state.count_search(line, container.string().size(), item.string().size());
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_list()) return item.is_in(container.list(), state, line);
  if (container.is_map()) {
    return item.is_string() && container.find(item.string(), state, line) != nullptr;
  }
  refuse_template(line, "'in' is not supported for {}", container.type_name());
}

bool is_less(const Value& left, const Value& right, int64_t line) {
  if (left.is_string() && right.is_string()) return left.string() < right.string();
  if (left.is_number() && right.is_number()) return left.number() < right.number();
  refuse_template(line, "cannot compare {} and {} by size", left.type_name(), right.type_name());
}

std::string joined_pair(const std::string& left, const std::string& right, int64_t line) {
  RenderState::check_text(line, left.size() + right.size());
  return left + right;
}

Value arithmetic(const std::string& name, const Value& left, const Value& right, int64_t line) {
  const auto counts = [](const Value& value) { return value.is_number() || value.is_bool(); };
  if (name == "+" && left.is_string() && right.is_string()) {
    return joined_pair(left.string(), right.string(), line);
  }
  if (name == "+" && left.is_list() && right.is_list() && left.is_tuple() == right.is_tuple()) {
    RenderState::check_list(line, left.list().size() + right.list().size());
    ValueList both = left.list();
    both.insert(both.end(), right.list().begin(), right.list().end());
    return left.is_tuple() ? Value::tuple(std::move(both)) : Value(std::move(both));
  }
  if (!counts(left) || !counts(right)) {
    refuse_template(line, "'{}' is not supported for {} and {}; is a part of a message missing?",
                    name, left.type_name(), right.type_name());
  }
  const bool divides = name == "/" || name == "//" || name == "%";
  if (divides && right.number() == 0) refuse_template(line, "division by zero");
  const bool is_whole = (left.is_integer() || left.is_bool()) &&
                        (right.is_integer() || right.is_bool()) && name != "/";
  if (is_whole) {
    const int64_t a = left.integer(), b = right.integer();
    int64_t result = 0;
    bool overflows = false;
    if (name == "+") overflows = __builtin_add_overflow(a, b, &result);
    if (name == "-") overflows = __builtin_sub_overflow(a, b, &result);
    if (name == "*") overflows = __builtin_mul_overflow(a, b, &result);
    overflows |= divides && b == -1 && a == INT64_MIN;
    if (overflows) refuse_template(line, "a number grows too large");
    if (name == "//") result = a / b - static_cast<int64_t>(a % b != 0 && (a < 0) != (b < 0));
    if (name == "%") result = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    return result;
  }
  const double a = left.number(), b = right.number();
  if (name == "+") return a + b;
  if (name == "-") return a - b;
  if (name == "*") return a * b;
  if (name == "/") return a / b;
  if (name == "//") return std::floor(a / b);
  return a - b * std::floor(a / b);
}

Value binary_value(const Expression& expression, const TemplateScope& scope) {
  const std::string& name = expression.name;
  const int64_t line = expression.line;
  Value left = evaluate(*expression.children[0], scope);
  if (name == "and" && !left.truth()) return left;
  if (name == "or" && left.truth()) return left;
  Value right = evaluate(*expression.children[1], scope);
  if (name == "and" || name == "or") return right;
  if (name == "~") {
    RenderState& state = scope.state();
    return joined_pair(left.text(state, line), right.text(state, line), line);
  }
  return arithmetic(name, left, right, line);
}

bool compares(const std::string& name, const Value& left, const Value& right, RenderState& state,
              int64_t line) {
  if (name == "==") return left.equals(right, state, line);
  if (name == "!=") return !left.equals(right, state, line);
  if (name == "in") return contains(right, left, state, line);
  if (name == "not in") return !contains(right, left, state, line);
  if (name == "<") return is_less(left, right, line);
  if (name == ">") return is_less(right, left, line);
  if (name == "<=") return !is_less(right, left, line);
  return !is_less(left, right, line);
}

// Compares each neighbour with the next, as Python chains them.
bool comparison_value(const Expression& expression, const TemplateScope& scope) {
  Value left = evaluate(*expression.children[0], scope);
  for (size_t i = 0; i < expression.names.size(); ++i) {
    Value right = evaluate(*expression.children[i + 1], scope);
    if (!compares(expression.names[i], left, right, scope.state(), expression.line)) return false;
    left = std::move(right);
  }
  return true;
}

Value unary_value(const Expression& expression, const TemplateScope& scope) {
  Value value = evaluate(*expression.children[0], scope);
  if (expression.name == "not") return !value.truth();
  if (!value.is_number()) {
    refuse_template(expression.line, "cannot apply a sign to {}", value.type_name());
  }
  if (expression.name == "+") return value;
  if (!value.is_integer()) return -value.number();
  if (value.integer() == INT64_MIN) refuse_template(expression.line, "a number grows too large");
  return -value.integer();
}

ValueList arguments_of(const Expression& call, const TemplateScope& scope, size_t first) {
  ValueList values;
  for (size_t i = first; i < call.children.size(); ++i) {
    values.push_back(evaluate(*call.children[i], scope));
  }
  return values;
}

ValueEntries named_arguments_of(const Expression& call, const TemplateScope& scope) {
  ValueEntries values;
  for (const auto& [name, expression] : call.named) {
    values.emplace_back(name, evaluate(*expression, scope));
  }
  return values;
}

Value map_value(const Expression& expression, const TemplateScope& scope) {
  ValueMap map;
  for (size_t i = 0; i < expression.names.size(); ++i) {
    map.entries.emplace_back(expression.names[i], evaluate(*expression.children[i], scope));
  }
  return map;
}

Value slice_value(const Expression& expression, const TemplateScope& scope) {
  const auto bound = [&](size_t child) {
    const auto& part = expression.children[child];
    return part ? evaluate(*part, scope) : Value();
  };
  return slice_of(evaluate(*expression.children[0], scope), bound(1), bound(2), bound(3),
                  expression.line);
}

Value call_value(const Expression& expression, const TemplateScope& scope) {
  const auto arguments = arguments_of(expression, scope, 0);
  const auto named = named_arguments_of(expression, scope);
  if (const TemplateNode* macro = scope.state().macro(expression.name)) {
    return call_macro(*macro, arguments, named, scope, expression.line);
  }
  return call_function(expression.name, arguments, named, scope.state(), expression.line);
}

// Jinja gives these names to the arguments of a macro call beyond the macro's own.
void refuse_extra_arguments(const Expression& expression, const TemplateScope& scope) {
  const bool is_extra = expression.name == "varargs" || expression.name == "kwargs";
  if (!is_extra || !scope.state().is_in_macro()) return;
  refuse_template(expression.line, "{} of a macro is not supported", expression.name);
}

Value value_of(const Expression& expression, const TemplateScope& scope) {
  const auto child = [&](size_t number) { return evaluate(*expression.children[number], scope); };
  switch (expression.kind) {
    case ExpressionKind::literal:
      return expression.literal;
    case ExpressionKind::name: {
      const Value* found = scope.find(expression.name);
      if (found == nullptr) refuse_extra_arguments(expression, scope);
      return found == nullptr ? Value() : *found;
    }
    case ExpressionKind::list:
      return arguments_of(expression, scope, 0);
    case ExpressionKind::tuple:
      return Value::tuple(arguments_of(expression, scope, 0));
    case ExpressionKind::map:
      return map_value(expression, scope);
    case ExpressionKind::attribute:
      return item_of(child(0), expression.name, scope.state(), expression.line);
    case ExpressionKind::item:
      return item_of(child(0), child(1), scope.state(), expression.line);
    case ExpressionKind::slice:
      return slice_value(expression, scope);
    case ExpressionKind::call:
      return call_value(expression, scope);
    case ExpressionKind::method:
      return call_method(child(0), expression.name, arguments_of(expression, scope, 1),
                         scope.state(), expression.line);
    case ExpressionKind::filter:
      return call_filter(child(0), expression.name, arguments_of(expression, scope, 1),
                         named_arguments_of(expression, scope), scope.state(), expression.line);
    case ExpressionKind::test:
      return passes_test(child(0), expression.name, arguments_of(expression, scope, 1),
                         scope.state(), expression.line) != expression.is_negated;
    case ExpressionKind::unary:
      return unary_value(expression, scope);
    case ExpressionKind::binary:
      return binary_value(expression, scope);
    case ExpressionKind::compare:
      return comparison_value(expression, scope);
    case ExpressionKind::condition:
      break;
  }
  if (child(1).truth()) return child(0);
  return expression.children[2] ? child(2) : Value();
}

}  // namespace

const Value* TemplateScope::find(const std::string& name) const {
  const auto found = names_.find(name);
  if (found != names_.end()) return &found->second;
  return outer_ == nullptr ? nullptr : outer_->find(name);
}

Value evaluate(const Expression& expression, const TemplateScope& scope) {
  Value value = value_of(expression, scope);
  scope.state().count(expression.line, value);
  return value;
}

}  // namespace fullshard::text::chat
