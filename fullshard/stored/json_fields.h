// SPDX-License-Identifier: Apache-2.0
// The fields of a JSON object from an untrusted file. Errors are of the kind input and name the
// place: "manifest.json: tensors[3].shape: is a string, expected an array".
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace fullshard::stored {

// Borrows the value.
class JsonFields {
 public:
  // `separator` stands between the place and the names of fields.
  JsonFields(const nlohmann::json& value, std::string where, std::string separator = ": ");

  const std::string& where() const { return where_; }
  bool has(const std::string& key) const;  // and it is not null
  JsonFields at(const std::string& key) const;
  std::vector<JsonFields> items() const;  // of an array
  std::vector<std::string> keys() const;  // of an object

  int64_t integer(int64_t least = 0) const;  // at least that
  double number() const;                     // null stands for NaN, which JSON lacks
  bool boolean() const;
  const std::string& text() const;
  std::vector<int64_t> integers() const;
  std::vector<std::string> texts() const;
  const nlohmann::json& value() const { return *value_; }

  [[noreturn]] void reject(const std::string& expected) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
  std::string separator_;
};

}  // namespace fullshard::stored
