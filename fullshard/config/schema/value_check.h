// SPDX-License-Identifier: Apache-2.0
// Whether a value is what a key accepts.
#pragma once

#include <optional>
#include <string>

#include "fullshard/config/document/document.h"
#include "fullshard/config/schema/schema.h"

namespace fullshard::config {

struct CheckedValue {
  // In the key's own form: 5e8 as an integer, a choice in its first spelling. Absent: not accepted.
  std::optional<ConfigNode> value{};
  std::string message{};
  std::string suggestion{};
  bool is_name = false;
  std::string remark{};  // how an accepted value was adjusted; may be empty
};

// `may_be_null`: the key is unset by default.
CheckedValue check_value(const ConfigNode& node, const ValueType& type, bool may_be_null);

// Whether the value is "auto" for a key that allows it.
bool is_auto(const ConfigNode& node, const ValueType& type);

// The warning for a value of a noted key that has no effect; empty: no warning.
std::string remark_on(const ConfigNode& value, const SchemaKey& key);

// Lower case, with underscores for spaces and dashes.
std::string plain_name(std::string_view text);

}  // namespace fullshard::config
