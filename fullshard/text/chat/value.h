// SPDX-License-Identifier: Apache-2.0
// The values that a chat template computes with, as Python and Jinja treat them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fullshard::text::chat {

class Value;
using ValueList = std::vector<Value>;
using ValueEntries = std::vector<std::pair<std::string, Value>>;  // in the order they came

// A dictionary, or what namespace() makes, whose attributes templates may set.
struct ValueMap {
  ValueEntries entries;
  bool is_namespace = false;
};

// Lists and dictionaries are shared by copies, as in Python; only a namespace ever changes, and it
// is part of no other value, so that no value holds itself.
class Value {
 public:
  struct Undefined {};

  Value() = default;  // undefined
  Value(std::nullptr_t) : data_(nullptr) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(ValueList list);  // an Error where it is nested too deep
  Value(ValueMap map);
  static Value tuple(ValueList list);  // a list in all but how it is printed and compared
  static Value of_json(const nlohmann::ordered_json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<std::nullptr_t>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const ValueList>>(data_); }
  bool is_tuple() const { return is_tuple_; }
  bool is_map() const { return std::holds_alternative<std::shared_ptr<ValueMap>>(data_); }

  bool truth() const;
  int64_t integer() const;  // of bools too
  double number() const;
  const std::string& string() const { return std::get<std::string>(data_); }
  const ValueList& list() const { return *std::get<std::shared_ptr<const ValueList>>(data_); }
  ValueMap& map() const { return *std::get<std::shared_ptr<ValueMap>>(data_); }

  const Value* find(const std::string& key) const;      // of a map
  void set(const std::string& key, Value value) const;  // in a namespace

  // As str() writes it, which is what a template prints; undefined is empty.
  std::string text() const;
  // As json.dumps writes it: ", " and ": ", or over lines with `indent` spaces; not escaped to
  // ASCII.
  std::string json(int64_t indent = -1) const;
  const char* type_name() const;  // for messages

  friend bool operator==(const Value& left, const Value& right);

 private:
  static constexpr int kDeepest = 200;  // its destruction recurses
  static int depth_around(const Value& part, int depth);

  std::string repr() const;
  void write_json(std::string& output, int64_t indent, int64_t depth) const;

  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::string,
               std::shared_ptr<const ValueList>, std::shared_ptr<ValueMap>>
      data_;
  int depth_ = 0;
  bool is_tuple_ = false;
};

}  // namespace fullshard::text::chat
