// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/json_node.h"

#include <sys/stat.h>

#include <algorithm>
#include <limits>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/printable.h"
#include "fullshard/base/text_file.h"

namespace fullshard::text {

JsonNode JsonNode::at(std::string_view key) const {
  auto found = get(key);
  if (!found) refuse(fmt::format("has no \"{}\"", key));
  return *found;
}

std::optional<JsonNode> JsonNode::get(std::string_view key) const {
  expect(value_.is_object(), "an object");
  const auto found = value_.find(std::string(key));
  if (found == value_.end() || found->is_null()) return std::nullopt;
  return JsonNode(*found, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

size_t JsonNode::size() const {
  expect(value_.is_array(), "an array");
  return value_.size();
}

JsonNode JsonNode::item(size_t index) const {
  if (index >= size()) refuse(fmt::format("has {} entries, expected more", size()));
  return {value_[index], fmt::format("{}[{}]", path_, index)};
}

std::string JsonNode::text() const {
  expect(value_.is_string(), "a string");
  return value_.get<std::string>();
}

bool JsonNode::flag() const {
  expect(value_.is_boolean(), "true or false");
  return value_.get<bool>();
}

int64_t JsonNode::number() const {
  expect(value_.is_number_integer(), "a whole number");
  return value_.get<int64_t>();
}

int32_t JsonNode::id() const {
  const int64_t value = number();
  if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
    refuse(fmt::format("is {}, expected the id of a token", value));
  }
  return static_cast<int32_t>(value);
}

double JsonNode::real() const {
  expect(value_.is_number(), "a number");
  return value_.get<double>();
}

std::string JsonNode::text_or(std::string_view key, std::string_view otherwise) const {
  const auto found = get(key);
  return found ? found->text() : std::string(otherwise);
}

bool JsonNode::flag_or(std::string_view key, bool otherwise) const {
  const auto found = get(key);
  return found ? found->flag() : otherwise;
}

void JsonNode::only(std::initializer_list<std::string_view> keys) const {
  expect(value_.is_object(), "an object");
  for (const auto& [key, unused] : value_.items()) {
    if (std::ranges::find(keys, key) == keys.end()) {
      refuse(fmt::format("unknown option \"{}\"", key));
    }
  }
}

void JsonNode::refuse(std::string_view why) const {
  constexpr size_t kMostShown = 300;  // bytes: names and values may be as long as the file
  const std::string where = path_.empty() ? "the top level" : base::printable(path_, kMostShown);
  fail_as(ErrorKind::input, "{}: {}", where, base::printable(why, kMostShown));
}

void JsonNode::refuse_value(std::string_view found) const {
  refuse(fmt::format("\"{}\" is not supported", found));
}

void JsonNode::expect(bool matches, std::string_view kind) const {
  if (!matches) refuse(fmt::format("is {}, expected {}", value_.type_name(), kind));
}

nlohmann::json read_json_file(const std::string& path) {
  try {
    return base::parse_json(base::read_text_file(path));
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::input, "{}: {}", path, error.what());
  }
}

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace fullshard::text
