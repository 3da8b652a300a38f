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

class RenderState;
class Value;
using ValueList = std::vector<Value>;
using ValueEntries = std::vector<std::pair<std::string, Value>>;  // in the order of insertion

// A dictionary, or the result of namespace(), whose attributes templates may set.
struct ValueMap {
  ValueEntries entries;
  bool is_namespace = false;
};

// Copies share texts, lists and dictionaries, as in Python; only a namespace ever changes, and it
// is part of no other value, so that no value contains itself. A shared part counts once in memory
// and each time in a walk: a value of forty lists may be a tree of 2^40 leaves. So functions that
// walk over values count their steps in the state of the rendering, at the template's `line`, and
// throw Error beyond the limits.
class Value {
 public:
  struct Undefined {};

  Value() = default;  // undefined
  Value(std::nullptr_t) : data_(nullptr) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(ValueList list);  // throws Error when it is nested too deeply
  Value(ValueMap map);
  static Value tuple(ValueList list);  // a list, except for how it is printed and compared
  static Value of_json(const nlohmann::ordered_json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<std::nullptr_t>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(data_); }
  bool is_string() const {
    return std::holds_alternative<std::shared_ptr<const std::string>>(data_);
  }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const ValueList>>(data_); }
  bool is_tuple() const { return is_tuple_; }
  bool is_map() const { return std::holds_alternative<std::shared_ptr<ValueMap>>(data_); }

  bool truth() const;
  int64_t integer() const;  // also of bools
  double number() const;
  const std::string& string() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const ValueList& list() const { return *std::get<std::shared_ptr<const ValueList>>(data_); }
  ValueMap& map() const { return *std::get<std::shared_ptr<ValueMap>>(data_); }

  // For a map; null if it has no such key.
  const Value* find(const std::string& key, RenderState& state, int64_t line) const;
  void set(const std::string& key, Value value) const;  // only in a namespace

  // As str() writes it, which is what a template prints; undefined gives an empty text.
  std::string text(RenderState& state, int64_t line) const;
  // As json.dumps writes it: ", " and ": ", or over lines with `indent` spaces; not escaped to
  // ASCII.
  std::string json(int64_t indent, RenderState& state, int64_t line) const;
  // As == compares, and as `in` compares with the items of a list.
  bool equals(const Value& other, RenderState& state, int64_t line) const;
  bool is_in(const ValueList& list, RenderState& state, int64_t line) const;
  const char* type_name() const;  // for messages

 private:
  static constexpr int kDeepest = 200;  // the destructor recurses
  static int depth_around(const Value& part, int depth);
  bool has_entries_of(const Value& other, RenderState& state, int64_t line) const;

  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const ValueList>, std::shared_ptr<ValueMap>>
      data_;
  int depth_ = 0;
  bool is_tuple_ = false;
};

}  // namespace fullshard::text::chat
