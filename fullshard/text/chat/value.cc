// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/chat/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"

namespace fullshard::text::chat {
namespace {

// As Python's repr: the shortest digits that give the number back, with a point.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  const bool is_whole = text.find_first_not_of("-0123456789") == std::string::npos;
  return is_whole ? text + ".0" : text;
}

std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const bool has_double = text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string result(1, quote);
  for (const char letter : text) {
    if (letter == quote || letter == '\\') result += '\\';
    if (letter == '\n') {
      result += "\\n";
    } else if (letter == '\t') {
      result += "\\t";
    } else if (letter == '\r') {
      result += "\\r";
    } else {
      result += letter;
    }
  }
  return result + quote;
}

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void write_line_end(std::string& output, int64_t indent, int64_t depth) {
  if (indent < 0) return;
  output += '\n';
  output.append(static_cast<size_t>(indent * depth), ' ');
}

}  // namespace

int Value::depth_around(const Value& part, int depth) {
  if (part.is_map() && part.map().is_namespace) {
    fail_as(ErrorKind::input, "chat_template: a namespace inside another value is not supported");
  }
  if (part.depth_ + 1 > kDeepest) {
    fail_as(ErrorKind::input, "chat_template: a value is nested too deep");
  }
  return std::max(depth, part.depth_ + 1);
}

Value::Value(ValueList list) {
  for (const Value& item : list) depth_ = depth_around(item, depth_);
  data_ = std::make_shared<const ValueList>(std::move(list));
}

Value Value::tuple(ValueList list) {
  Value value(std::move(list));
  value.is_tuple_ = true;
  return value;
}

Value::Value(ValueMap map) {
  for (const auto& [key, item] : map.entries) depth_ = depth_around(item, depth_);
  data_ = std::make_shared<ValueMap>(std::move(map));
}

Value Value::of_json(const nlohmann::ordered_json& json) {
  if (json.is_null()) return nullptr;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    ValueList list;
    for (const auto& item : json) list.push_back(of_json(item));
    return list;
  }
  ValueMap map;
  for (const auto& [key, item] : json.items()) map.entries.emplace_back(key, of_json(item));
  return map;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_bool()) return std::get<bool>(data_);
  if (is_number()) return number() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().empty();
  return map().is_namespace || !map().entries.empty();
}

int64_t Value::integer() const {
  return is_bool() ? static_cast<int64_t>(std::get<bool>(data_)) : std::get<int64_t>(data_);
}

double Value::number() const {
  if (const auto* value = std::get_if<double>(&data_)) return *value;
  return static_cast<double>(integer());
}

const Value* Value::find(const std::string& key) const {
  for (const auto& [name, value] : map().entries) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Value::set(const std::string& key, Value value) const {
  depth_around(value, 0);
  for (auto& [name, known] : map().entries) {
    if (name != key) continue;
    known = std::move(value);
    return;
  }
  map().entries.emplace_back(key, std::move(value));
}

std::string Value::text() const {
  if (is_undefined()) return {};
  return is_string() ? string() : repr();
}

std::string Value::repr() const {
  if (is_undefined()) return {};
  if (is_none()) return "None";
  if (is_bool()) return truth() ? "True" : "False";
  if (is_integer()) return fmt::format("{}", integer());
  if (is_number()) return float_text(number());
  if (is_string()) return quoted(string());
  std::string result;
  if (is_list()) {
    for (const Value& item : list()) result += (result.empty() ? "" : ", ") + item.repr();
    if (!is_tuple()) return "[" + result + "]";
    return "(" + result + (list().size() == 1 ? ",)" : ")");
  }
  for (const auto& [key, value] : map().entries) {
    result += (result.empty() ? "" : ", ") + quoted(key) + ": " + value.repr();
  }
  return "{" + result + "}";
}

std::string Value::json(int64_t indent) const {
  std::string output;
  write_json(output, indent, 1);
  return output;
}

void Value::write_json(std::string& output, int64_t indent, int64_t depth) const {
  const char* between = indent < 0 ? ", " : ",";
  if (is_none() || is_undefined()) {
    output += "null";
  } else if (is_bool()) {
    output += truth() ? "true" : "false";
  } else if (is_string()) {
    output += json_string(string());
  } else if (is_number()) {
    output += repr();
  } else if (is_list()) {
    output += '[';
    for (size_t i = 0; i < list().size(); ++i) {
      if (i > 0) output += between;
      write_line_end(output, indent, depth);
      list()[i].write_json(output, indent, depth + 1);
    }
    if (!list().empty()) write_line_end(output, indent, depth - 1);
    output += ']';
  } else {
    output += '{';
    bool is_first = true;
    for (const auto& [key, value] : map().entries) {
      if (!is_first) output += between;
      is_first = false;
      write_line_end(output, indent, depth);
      output += json_string(key) + ": ";
      value.write_json(output, indent, depth + 1);
    }
    if (!is_first) write_line_end(output, indent, depth - 1);
    output += '}';
  }
}

const char* Value::type_name() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "none";
  if (is_bool()) return "a boolean";
  if (is_number()) return "a number";
  if (is_string()) return "a string";
  if (is_tuple()) return "a tuple";
  return is_list() ? "a list" : "a mapping";
}

bool operator==(const Value& left, const Value& right) {
  const auto counts = [](const Value& value) { return value.is_number() || value.is_bool(); };
  if (counts(left) && counts(right)) return left.number() == right.number();
  if (left.data_.index() != right.data_.index()) return false;
  if (left.is_string()) return left.string() == right.string();
  if (left.is_tuple() != right.is_tuple()) return false;
  if (left.is_list()) return left.list() == right.list();
  if (!left.is_map()) return true;
  if (left.map().entries.size() != right.map().entries.size()) return false;
  for (const auto& [key, value] : left.map().entries) {
    const Value* other = right.find(key);
    if (other == nullptr || !(*other == value)) return false;
  }
  return true;
}

}  // namespace fullshard::text::chat
