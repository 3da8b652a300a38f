// SPDX-License-Identifier: Apache-2.0
// Words that other programs use for keys and flags that have other names here.
#pragma once

#include <string>
#include <string_view>

#include "fullshard/config/schema/schema.h"

namespace fullshard::config {

struct Synonym {
  std::string_view word;  // as plain_name() writes it
  std::string_view flag;  // without dashes in front, as plain_name() writes it
  std::string_view key;   // the last part of a key's path; empty: no file has it
};

// Null when the word is not a synonym.
const Synonym* find_synonym(std::string_view word);

struct KeySuggestion {
  std::string text{};
  bool is_name = false;  // a key that may have been meant; else what to do
};

// For an unknown key of that section: the key's name in this family, or the flag.
KeySuggestion suggest_synonym(const Schema& schema, std::string_view section,
                              std::string_view name);

}  // namespace fullshard::config
