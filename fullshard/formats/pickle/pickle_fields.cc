// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/pickle/pickle_fields.h"

#include "fullshard/formats/input_error.h"

namespace fullshard::formats {

const PickleValue& field_of(const PickleValue& value, std::string_view key,
                            const std::string& where) {
  check_input(value.kind == PickleKind::dict, "{}: is {}, expected a dictionary", where,
              value.describe());
  const PickleValue* found = value.find(key);
  check_input(found != nullptr, "{}: has no '{}'", where, key);
  return *found;
}

const PickleValue* find_number(const PickleValue& dict, int64_t key) {
  for (const auto& [name, value] : dict.pairs) {
    if (name->kind == PickleKind::integer && name->integer == key) return value;
  }
  return nullptr;
}

const PickleValue* find_attribute(const PickleValue& object, std::string_view name) {
  return object.state == nullptr ? nullptr : object.state->find(name);
}

const PickleValue& attribute_of(const PickleValue& object, std::string_view name,
                                const std::string& where) {
  const PickleValue* found = find_attribute(object, name);
  check_input(found != nullptr, "{}: is {}, without '{}'", where, object.describe(), name);
  return *found;
}

std::optional<int64_t> number_in(const PickleValue& value) {
  if (value.kind == PickleKind::integer || value.kind == PickleKind::boolean) return value.integer;
  if (value.kind != PickleKind::object || value.arguments == nullptr) return std::nullopt;
  const auto& given = value.arguments->items;
  if (given.size() != 1 || given[0]->kind != PickleKind::integer) return std::nullopt;
  return given[0]->integer;
}

int64_t number_of(const PickleValue& value, const std::string& where) {
  const auto number = number_in(value);
  check_input(number.has_value(), "{}: is {}, expected a whole number", where, value.describe());
  return *number;
}

std::optional<double> real_in(const PickleValue& value) {
  if (value.kind == PickleKind::real) return value.real;
  const auto number = number_in(value);
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}

std::string text_of(const PickleValue& value, const std::string& where) {
  check_input(value.kind == PickleKind::text, "{}: is {}, expected a string", where,
              value.describe());
  return value.text;
}

const std::vector<const PickleValue*>& items_of(const PickleValue& value,
                                                const std::string& where) {
  check_input(value.kind == PickleKind::list || value.kind == PickleKind::tuple,
              "{}: is {}, expected a list", where, value.describe());
  return value.items;
}

std::vector<int64_t> shape_of(const PickleValue& value, const std::string& where) {
  std::vector<int64_t> shape;
  for (const auto* item : items_of(value, where)) {
    shape.push_back(number_of(*item, where));
    check_input(shape.back() >= 0, "{}: has a size of {}", where, shape.back());
  }
  return shape;
}

}  // namespace fullshard::formats
