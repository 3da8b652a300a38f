// SPDX-License-Identifier: Apache-2.0
// A value of a JSON file with the path to it, for messages such as "model.vocab: …".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace fullshard::text {

class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string path) : value_(value), path_(std::move(path)) {}

  // For an object: the value of a key that must exist; of one that may be absent or null.
  JsonNode at(std::string_view key) const;
  std::optional<JsonNode> get(std::string_view key) const;
  // For an array.
  size_t size() const;
  JsonNode item(size_t index) const;

  std::string text() const;
  bool flag() const;
  int64_t number() const;
  int32_t id() const;  // of a token
  double real() const;

  std::string text_or(std::string_view key, std::string_view otherwise) const;
  bool flag_or(std::string_view key, bool otherwise) const;

  // Refuses every other key of an object.
  void only(std::initializer_list<std::string_view> keys) const;

  const nlohmann::json& value() const { return value_; }
  const std::string& path() const { return path_; }
  [[noreturn]] void refuse(std::string_view why) const;
  // The value is `found`, which is not supported.
  [[noreturn]] void refuse_value(std::string_view found) const;

 private:
  void expect(bool matches, std::string_view kind) const;

  const nlohmann::json& value_;
  std::string path_;
};

// Throws Error of the kind input that names the file when it is missing, unreadable or not JSON.
nlohmann::json read_json_file(const std::string& path);
bool is_file(const std::string& path);

}  // namespace fullshard::text
