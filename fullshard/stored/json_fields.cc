// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/json_fields.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/formats/input_error.h"

namespace fullshard::stored {

JsonFields::JsonFields(const nlohmann::json& value, std::string where, std::string separator)
    : value_(&value), where_(std::move(where)), separator_(std::move(separator)) {}

void JsonFields::reject(const std::string& expected) const {
  auto found = value_->dump();
  if (found.size() > 40) found = found.substr(0, 40) + "…";
  formats::fail_input("{}: is {}, expected {}", where_, found, expected);
}

bool JsonFields::has(const std::string& key) const {
  return value_->is_object() && value_->contains(key) && !value_->at(key).is_null();
}

JsonFields JsonFields::at(const std::string& key) const {
  if (!value_->is_object()) reject("an object");
  formats::check_input(value_->contains(key), "{}: has no field '{}'", where_, key);
  return {value_->at(key), where_ + separator_ + key, "."};
}

std::vector<JsonFields> JsonFields::items() const {
  if (!value_->is_array()) reject("an array");
  std::vector<JsonFields> items;
  items.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    items.emplace_back((*value_)[i], fmt::format("{}[{}]", where_, i), ".");
  }
  return items;
}

std::vector<std::string> JsonFields::keys() const {
  if (!value_->is_object()) reject("an object");
  std::vector<std::string> keys;
  for (const auto& item : value_->items()) keys.push_back(item.key());
  return keys;
}

int64_t JsonFields::integer(int64_t least) const {
  const auto expected = [&] { return fmt::format("a whole number from {} on", least); };
  if (!value_->is_number_integer()) reject(expected());
  if (value_->is_number_unsigned() &&
      value_->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    reject(expected());
  }
  const auto number = value_->get<int64_t>();
  if (number < least) reject(expected());
  return number;
}

double JsonFields::number() const {
  if (value_->is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value_->is_number()) reject("a number");
  return value_->get<double>();
}

bool JsonFields::boolean() const {
  if (!value_->is_boolean()) reject("true or false");
  return value_->get<bool>();
}

const std::string& JsonFields::text() const {
  if (!value_->is_string()) reject("a string");
  return value_->get_ref<const std::string&>();
}

std::vector<int64_t> JsonFields::integers() const {
  std::vector<int64_t> numbers;
  for (const auto& item : items()) numbers.push_back(item.integer());
  return numbers;
}

std::vector<std::string> JsonFields::texts() const {
  std::vector<std::string> texts;
  for (const auto& item : items()) texts.push_back(item.text());
  return texts;
}

}  // namespace fullshard::stored
