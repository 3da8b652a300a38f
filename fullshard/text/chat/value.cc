// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/chat/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/text/chat/render_state.h"

namespace fullshard::text::chat {
namespace {

// As Python's repr: the fewest digits that read back to the number, with a point.
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

// Writes one text; every piece of it counts.
class ValueWriter {
 public:
  ValueWriter(RenderState& state, int64_t line) : state_(state), line_(line) {}
  std::string take() { return std::move(output_); }

  void write_repr(const Value& value) {
    state_.count(line_);
    if (value.is_list()) {
      write_list(value);
    } else if (value.is_map()) {
      write_map(value);
    } else {
      put(scalar_repr(value));
    }
  }

  void write_json(const Value& value, int64_t indent, int64_t depth = 1) {
    state_.count(line_);
    if (value.is_list()) {
      put("[");
      for (const Value& item : value.list()) {
        begin_json_item(&item == &value.list().front(), indent, depth);
        write_json(item, indent, depth + 1);
      }
      end_json_items(value.list().empty(), indent, depth);
      put("]");
    } else if (value.is_map()) {
      put("{");
      const ValueEntries& entries = value.map().entries;
      for (const auto& entry : entries) {
        begin_json_item(&entry == &entries.front(), indent, depth);
        put(json_string(entry.first));
        put(": ");
        write_json(entry.second, indent, depth + 1);
      }
      end_json_items(entries.empty(), indent, depth);
      put("}");
    } else {
      put(scalar_json(value));
    }
  }

 private:
  void put(std::string_view piece) {
    RenderState::check_text(line_, output_.size() + piece.size());
    output_ += piece;
  }

  static std::string scalar_repr(const Value& value) {
    if (value.is_undefined()) return {};
    if (value.is_none()) return "None";
    if (value.is_bool()) return value.truth() ? "True" : "False";
    if (value.is_integer()) return fmt::format("{}", value.integer());
    return value.is_number() ? float_text(value.number()) : quoted(value.string());
  }

  static std::string scalar_json(const Value& value) {
    if (value.is_none() || value.is_undefined()) return "null";
    if (value.is_bool()) return value.truth() ? "true" : "false";
    return value.is_string() ? json_string(value.string()) : scalar_repr(value);
  }

  void write_list(const Value& value) {
    put(value.is_tuple() ? "(" : "[");
    const char* between = "";
    for (const Value& item : value.list()) {
      put(std::exchange(between, ", "));
      write_repr(item);
    }
    const bool is_single = value.is_tuple() && value.list().size() == 1;
    put(is_single ? ",)" : value.is_tuple() ? ")" : "]");
  }

  void write_map(const Value& value) {
    put("{");
    const char* between = "";
    for (const auto& [key, item] : value.map().entries) {
      put(std::exchange(between, ", "));
      put(quoted(key));
      put(": ");
      write_repr(item);
    }
    put("}");
  }

  void begin_json_item(bool is_first, int64_t indent, int64_t depth) {
    if (!is_first) put(indent < 0 ? ", " : ",");
    end_line(indent, depth);
  }

  void end_json_items(bool are_none, int64_t indent, int64_t depth) {
    if (!are_none) end_line(indent, depth - 1);
  }

  void end_line(int64_t indent, int64_t depth) {
    if (indent < 0) return;
    put("\n");
    put(std::string(static_cast<size_t>(indent * depth), ' '));
  }

  RenderState& state_;
  int64_t line_;
  std::string output_;
};

}  // namespace

int Value::depth_around(const Value& part, int depth) {
  if (part.is_map() && part.map().is_namespace) {
    fail_as(ErrorKind::input, "chat_template: a namespace inside another value is not supported");
  }
  if (part.depth_ + 1 > kDeepest) {
    fail_as(ErrorKind::input, "chat_template: a value is nested too deeply");
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

const Value* Value::find(const std::string& key, RenderState& state, int64_t line) const {
  state.count_items(line, map().entries.size());
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

std::string Value::text(RenderState& state, int64_t line) const {
  if (is_string()) return string();
  if (is_undefined()) return {};
  ValueWriter writer(state, line);
  writer.write_repr(*this);
  return writer.take();
}

std::string Value::json(int64_t indent, RenderState& state, int64_t line) const {
  ValueWriter writer(state, line);
  writer.write_json(*this, indent);
  return writer.take();
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

bool Value::equals(const Value& other, RenderState& state, int64_t line) const {
  state.count(line);
  const auto counts = [](const Value& value) { return value.is_number() || value.is_bool(); };
  if (counts(*this) && counts(other)) return number() == other.number();
  if (data_.index() != other.data_.index()) return false;
  if (is_string()) {
    if (string().size() == other.string().size()) state.count_bytes(line, string().size());
    return string() == other.string();
  }
  if (is_tuple() != other.is_tuple()) return false;
  if (is_list()) {
    return std::ranges::equal(list(), other.list(), [&](const Value& left, const Value& right) {
      return left.equals(right, state, line);
    });
  }
  return !is_map() || has_entries_of(other, state, line);
}

bool Value::has_entries_of(const Value& other, RenderState& state, int64_t line) const {
  if (map().entries.size() != other.map().entries.size()) return false;
  return std::ranges::all_of(map().entries, [&](const auto& entry) {
    const Value* found = other.find(entry.first, state, line);
    return found != nullptr && entry.second.equals(*found, state, line);
  });
}

bool Value::is_in(const ValueList& list, RenderState& state, int64_t line) const {
  return std::ranges::any_of(list,
                             [&](const Value& item) { return item.equals(*this, state, line); });
}

}  // namespace fullshard::text::chat
