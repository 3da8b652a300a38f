// SPDX-License-Identifier: Apache-2.0
// Methods, filters, functions and tests that chat templates use, as Python and Jinja define them.
#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "fullshard/text/chat/expression.h"
#include "fullshard/text/chat/string_functions.h"

namespace fullshard::text::chat {
namespace {

Value list_of(const std::vector<std::string>& texts, int64_t line) {
  RenderState::check_list(line, texts.size());
  return ValueList(texts.begin(), texts.end());
}

void expect_arguments(const char* kind, const std::string& name, const ValueList& arguments,
                      size_t least, size_t most, int64_t line) {
  if (arguments.size() >= least && arguments.size() <= most) return;
  refuse_template(line, "{} {} with {} arguments is not supported", kind, name, arguments.size());
}

void expect_strings(const std::string& name, const ValueList& arguments, size_t count,
                    int64_t line) {
  for (size_t i = 0; i < std::min(count, arguments.size()); ++i) {
    if (!arguments[i].is_string()) refuse_template(line, "{} expects a string", name);
  }
}

ValueList items_of(const ValueMap& map) {
  ValueList items;
  for (const auto& [key, value] : map.entries) items.push_back(Value::tuple(ValueList{key, value}));
  return items;
}

Value map_method(const Value& value, const std::string& name, const ValueList& arguments,
                 RenderState& state, int64_t line) {
  const ValueMap& map = value.map();
  if (name == "items") return items_of(map);
  ValueList list;
  if (name == "keys") {
    for (const auto& [key, item] : map.entries) list.emplace_back(key);
    return list;
  }
  if (name == "values") {
    for (const auto& [key, item] : map.entries) list.push_back(item);
    return list;
  }
  if (name == "get") {
    expect_arguments("method", name, arguments, 1, 2, line);
    expect_strings(name, arguments, 1, line);
    if (const Value* found = value.find(arguments[0].string(), state, line)) return *found;
    return arguments.size() > 1 ? arguments[1] : Value(nullptr);
  }
  refuse_template(line, "the method {} of a mapping is not supported", name);
}

Value joined_text(const ValueList& list, const std::string& between, RenderState& state,
                  int64_t line) {
  std::string result;
  for (size_t i = 0; i < list.size(); ++i) {
    result += (i == 0 ? "" : between) + list[i].text(state, line);
    RenderState::check_text(line, result.size());
  }
  return result;
}

// Letters beyond ASCII would need a table for their case, and no published template changes it.
Value in_case(const std::string& text, const std::string& name, int64_t line) {
  if (!is_ascii(text)) {
    refuse_template(line, "{} of a text with letters beyond ASCII is not supported", name);
  }
  if (name == "title" || name == "capitalize") return capitalised(text, name == "title");
  return with_case(text, name == "upper");
}

Value replaced_text(const std::string& text, const std::string& old, const std::string& with,
                    RenderState& state, int64_t line) {
  const size_t most = old.empty() ? 0 : text.size() / old.size();
  if (most * with.size() > RenderState::kMostTextBytes) {
    refuse_template(line, "a text may grow too long");
  }
  state.count_search(line, text.size(), old.size());
  return with_replaced(text, old, with);
}

Value split_text(const std::string& text, const std::string& name, const ValueList& arguments,
                 int64_t line) {
  if (arguments.empty() || arguments[0].is_none()) return list_of(split_at_space(text), line);
  if (arguments[0].string().empty()) refuse_template(line, "{} expects a separator", name);
  if (arguments.size() > 1 && !arguments[1].is_integer()) {
    refuse_template(line, "{} expects a whole number of splits", name);
  }
  return list_of(
      split_at(text, arguments[0].string(), arguments.size() > 1 ? arguments[1].integer() : -1,
               name == "rsplit" ? Side::right : Side::left),
      line);
}

// The position of `found` in `text`, in characters.
int64_t place_of(const std::string& text, size_t found) {
  if (found == std::string::npos) return -1;
  return num_characters(std::string_view(text).substr(0, found));
}

int64_t length_of(const Value& value, int64_t line) {
  if (value.is_list()) return static_cast<int64_t>(value.list().size());
  if (value.is_map()) return static_cast<int64_t>(value.map().entries.size());
  if (!value.is_string()) refuse_template(line, "{} has no length", value.type_name());
  return num_characters(value.string());
}

std::string indented(const std::string& text, const ValueList& arguments, int64_t line) {
  const int64_t width =
      !arguments.empty() && arguments[0].is_integer() ? arguments[0].integer() : 4;
  const bool first = arguments.size() > 1 && arguments[1].truth();
  const std::string space(static_cast<size_t>(std::clamp<int64_t>(width, 0, 1000)), ' ');
  std::string result = first ? space : "";
  for (size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    const bool begins_line = text[i] == '\n' && i + 1 < text.size() && text[i + 1] != '\n';
    if (begins_line) result += space;
    RenderState::check_text(line, result.size());
  }
  return result;
}

// Undefined if the item has no such attribute.
Value attribute_of(const Value& item, const std::string& key, RenderState& state, int64_t line) {
  state.count(line);
  const Value* found = item.is_map() ? item.find(key, state, line) : nullptr;
  return found == nullptr ? Value() : *found;
}

// selectattr('role', 'equalto', 'user') and rejectattr.
Value selected(const Value& value, const std::string& name, const ValueList& arguments,
               RenderState& state, int64_t line) {
  expect_arguments("filter", name, arguments, 1, 3, line);
  if (!value.is_list()) refuse_template(line, "{} expects a list, not {}", name, value.type_name());
  const std::string key = arguments[0].text(state, line);
  const std::string test = arguments.size() > 1 ? arguments[1].text(state, line) : "";
  const ValueList rest(arguments.begin() + std::min<std::ptrdiff_t>(2, std::ssize(arguments)),
                       arguments.end());
  ValueList kept;
  for (const Value& item : value.list()) {
    const Value attribute = attribute_of(item, key, state, line);
    const bool passes =
        arguments.size() < 2 ? attribute.truth() : passes_test(attribute, test, rest, state, line);
    if (passes == (name == "selectattr")) kept.push_back(item);
  }
  return kept;
}

// map(attribute='content').
Value mapped(const Value& value, const ValueEntries& named, RenderState& state, int64_t line) {
  if (!value.is_list() || named.size() != 1 || named[0].first != "attribute") {
    refuse_template(line, "the filter map is supported as map(attribute=…) of a list only");
  }
  const std::string key = named[0].second.text(state, line);
  ValueList result;
  for (const Value& item : value.list()) result.push_back(attribute_of(item, key, state, line));
  return result;
}

Value json_text_of(const Value& value, const ValueList& arguments, const ValueEntries& named,
                   RenderState& state, int64_t line) {
  Value indent = arguments.empty() ? Value(nullptr) : arguments[0];
  for (const auto& [name, given] : named) {
    if (name == "indent") {
      indent = given;
    } else if (name != "ensure_ascii" || given.truth()) {
      refuse_template(line, "the argument {} of tojson is not supported", name);
    }
  }
  const int64_t width = indent.is_integer() ? std::clamp<int64_t>(indent.integer(), 0, 100) : -1;
  return value.json(width, state, line);
}

constexpr int64_t kMostInRange = 100'000;  // the limit of Jinja's sandbox

Value range_of(const ValueList& arguments, int64_t line) {
  expect_arguments("function", "range", arguments, 1, 3, line);
  for (const Value& argument : arguments) {
    if (!argument.is_integer()) refuse_template(line, "range expects whole numbers");
  }
  const int64_t first = arguments.size() > 1 ? arguments[0].integer() : 0;
  const int64_t last = arguments[arguments.size() > 1 ? 1 : 0].integer();
  const int64_t step = arguments.size() > 2 ? arguments[2].integer() : 1;
  ValueList list;
  if (step == 0) refuse_template(line, "range expects a step other than 0");
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) {
    if (std::ssize(list) == kMostInRange) refuse_template(line, "a range is too long");
    list.emplace_back(i);
  }
  return list;
}

std::string time_text(const std::string& format) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[256];
  return std::string(text, std::strftime(text, sizeof(text), format.c_str(), &local));
}

Value copied_map(const ValueEntries& named, bool is_namespace) {
  return ValueMap{.entries = named, .is_namespace = is_namespace};
}

}  // namespace

Value call_method(const Value& value, const std::string& name, const ValueList& arguments,
                  RenderState& state, int64_t line) {
  if (value.is_map()) return map_method(value, name, arguments, state, line);
  if (!value.is_string()) {
    refuse_template(line, "the method {} of {} is not supported", name, value.type_name());
  }
  const std::string& text = value.string();
  const bool takes_two = name == "split" || name == "rsplit" || name == "replace";
  expect_arguments("method", name, arguments, 0, takes_two ? 2 : 1, line);
  if (name == "join" && arguments.size() == 1 && arguments[0].is_list()) {
    return joined_text(arguments[0].list(), text, state, line);
  }
  const bool may_be_none = name == "split" && !arguments.empty() && arguments[0].is_none();
  if (!may_be_none) expect_strings(name, arguments, name == "replace" ? 2 : 1, line);
  if (!arguments.empty() && !may_be_none) {
    state.count_search(line, text.size(), arguments[0].string().size());
  }
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Side side = name == "strip" ? Side::both : name == "lstrip" ? Side::left : Side::right;
    return arguments.empty() ? stripped(text, side) : stripped(text, arguments[0].string(), side);
  }
  if (name == "split" || name == "rsplit") return split_text(text, name, arguments, line);
  if (name == "replace" && arguments.size() == 2) {
    return replaced_text(text, arguments[0].string(), arguments[1].string(), state, line);
  }
  if (arguments.empty()) {
    if (name == "upper" || name == "lower" || name == "title" || name == "capitalize") {
      return in_case(text, name, line);
    }
    if (name == "splitlines") return list_of(split_lines(text), line);
    if (name == "isdigit") {
      return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    }
  } else if (arguments.size() == 1) {
    const std::string& other = arguments[0].string();
    if (name == "startswith") return text.starts_with(other);
    if (name == "endswith") return text.ends_with(other);
    if (name == "find") return place_of(text, text.find(other));
    if (name == "rfind") return place_of(text, text.rfind(other));
    if (name == "count" && !other.empty()) {
      return static_cast<int64_t>(split_at(text, other, -1).size()) - 1;
    }
    if (name == "removeprefix") {
      return text.starts_with(other) ? text.substr(other.size()) : text;
    }
    if (name == "removesuffix") {
      return text.ends_with(other) ? text.substr(0, text.size() - other.size()) : text;
    }
  }
  refuse_template(line, "the method {} of a string is not supported", name);
}

Value call_filter(const Value& value, const std::string& name, const ValueList& arguments,
                  const ValueEntries& named, RenderState& state, int64_t line) {
  if (name == "tojson") return json_text_of(value, arguments, named, state, line);
  if (name == "map") return mapped(value, named, state, line);
  if (!named.empty()) {
    refuse_template(line, "the argument {} of the filter {} is not supported", named[0].first,
                    name);
  }
  if (name == "trim") {
    expect_arguments("filter", name, arguments, 0, 1, line);
    const std::string text = value.text(state, line);
    if (arguments.empty()) return stripped(text, Side::both);
    const std::string letters = arguments[0].text(state, line);
    state.count_search(line, text.size(), letters.size());
    return stripped(text, letters, Side::both);
  }
  if (name == "length" || name == "count") return length_of(value, line);
  if (name == "upper" || name == "lower" || name == "title" || name == "capitalize") {
    const Value cased = in_case(value.text(state, line), name, line);
    return name == "title" ? Value(titled(cased.string())) : cased;
  }
  if (name == "string") return value.text(state, line);
  if (name == "safe") return value;
  if (name == "indent") return indented(value.text(state, line), arguments, line);
  if (name == "selectattr" || name == "rejectattr") {
    return selected(value, name, arguments, state, line);
  }
  if (name == "items" && value.is_map()) return items_of(value.map());
  if (name == "replace") {
    expect_arguments("filter", name, arguments, 2, 2, line);
    return replaced_text(value.text(state, line), arguments[0].text(state, line),
                         arguments[1].text(state, line), state, line);
  }
  if (name == "default" || name == "d") {
    expect_arguments("filter", name, arguments, 1, 2, line);
    const bool is_absent =
        value.is_undefined() || (arguments.size() > 1 && arguments[1].truth() && !value.truth());
    return is_absent ? arguments[0] : value;
  }
  if (name == "join" && value.is_list()) {
    expect_arguments("filter", name, arguments, 0, 1, line);
    const std::string between = arguments.empty() ? "" : arguments[0].text(state, line);
    return joined_text(value.list(), between, state, line);
  }
  if ((name == "first" || name == "last") && value.is_list()) {
    if (value.list().empty()) return {};
    return name == "first" ? value.list().front() : value.list().back();
  }
  if (name == "list" && value.is_list()) return ValueList(value.list());
  if (name == "list" && value.is_string()) {
    RenderState::check_list(line, static_cast<size_t>(num_characters(value.string())));
    return list_of(characters_of(value.string()), line);
  }
  if (name == "abs" && value.is_integer() && value.integer() != INT64_MIN) {
    return std::abs(value.integer());
  }
  if (name == "reverse" && value.is_list()) {
    return ValueList(value.list().rbegin(), value.list().rend());
  }
  if (name == "int" && (value.is_number() || value.is_bool())) {
    return static_cast<int64_t>(value.number());
  }
  refuse_template(line, "the filter {} of {} is not supported", name, value.type_name());
}

Value call_function(const std::string& name, const ValueList& arguments, const ValueEntries& named,
                    RenderState& state, int64_t line) {
  if (name == "raise_exception") {
    expect_arguments("function", name, arguments, 1, 1, line);
    fail_as(ErrorKind::input, "chat_template: {}",
            base::printable(arguments[0].text(state, line), kMostSaidBytes));
  }
  if ((name == "namespace" || name == "dict") && arguments.empty()) {
    return copied_map(named, name == "namespace");
  }
  if (!named.empty()) {
    refuse_template(line, "the argument {} of the function {} is not supported", named[0].first,
                    name);
  }
  if (name == "range") return range_of(arguments, line);
  if (name == "strftime_now") {
    expect_arguments("function", name, arguments, 1, 1, line);
    return time_text(arguments[0].text(state, line));
  }
  refuse_template(line, "the function {} is not supported", name);
}

bool passes_test(const Value& value, const std::string& name, const ValueList& arguments,
                 RenderState& state, int64_t line) {
  const bool compares =
      name == "equalto" || name == "eq" || name == "ne" || name == "in" || name == "divisibleby";
  expect_arguments("test", name, arguments, compares ? 1 : 0, compares ? 1 : 0, line);
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.is_string();
  if (name == "number") return value.is_number() || value.is_bool();
  if (name == "integer") return value.is_integer();
  if (name == "boolean") return value.is_bool();
  if (name == "mapping") return value.is_map();
  if (name == "sequence" || name == "iterable") {
    return value.is_list() || value.is_string() || value.is_map();
  }
  if (name == "true") return value.is_bool() && value.truth();
  if (name == "false") return value.is_bool() && !value.truth();
  if ((name == "even" || name == "odd") && value.is_integer()) {
    return (value.integer() % 2 == 0) == (name == "even");
  }
  if (name == "divisibleby" && value.is_integer() && arguments[0].is_integer() &&
      arguments[0].integer() > 0) {
    return value.integer() % arguments[0].integer() == 0;
  }
  if (name == "equalto" || name == "eq") return value.equals(arguments[0], state, line);
  if (name == "ne") return !value.equals(arguments[0], state, line);
  if (name == "in" && arguments[0].is_string() && value.is_string()) {
    state.count_search(line, arguments[0].string().size(), value.string().size());
    return arguments[0].string().find(value.string()) != std::string::npos;
  }
  if (name == "in" && arguments[0].is_list()) {
    return value.is_in(arguments[0].list(), state, line);
  }
  refuse_template(line, "the test {} is not supported", name);
}

}  // namespace fullshard::text::chat
