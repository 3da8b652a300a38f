// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/pickle/pickle_value.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::formats {

const PickleValue* PickleValue::find(std::string_view key) const {
  const auto is_named = [&](const auto& pair) {
    return pair.first->kind == PickleKind::text && pair.first->text == key;
  };
  // The last one wins, as in Python.
  const auto found = std::find_if(pairs.rbegin(), pairs.rend(), is_named);
  return found == pairs.rend() ? nullptr : found->second;
}

std::string_view PickleValue::class_name() const {
  if (kind != PickleKind::object || callable->kind != PickleKind::global) return "";
  return callable->text;
}

std::string PickleValue::describe() const {
  switch (kind) {
    case PickleKind::none:
      return "None";
    case PickleKind::boolean:
      return integer != 0 ? "True" : "False";
    case PickleKind::integer:
      return fmt::format("the number {}", integer);
    case PickleKind::big_integer:
      return "a number beyond 64 bits";
    case PickleKind::real:
      return fmt::format("the number {}", real);
    case PickleKind::text:
      return "a string";
    case PickleKind::bytes:
      return fmt::format("{} bytes", text.size());
    case PickleKind::list:
      return fmt::format("a list of {}", items.size());
    case PickleKind::tuple:
      return fmt::format("a tuple of {}", items.size());
    case PickleKind::set:
      return fmt::format("a set of {}", items.size());
    case PickleKind::dict:
      return fmt::format("a dictionary of {}", pairs.size());
    case PickleKind::global:
      return fmt::format("the name {}", text);
    case PickleKind::object:
      break;
    case PickleKind::persistent:
      return "something stored outside the pickle";
  }
  return class_name().empty() ? "an object" : fmt::format("an object of {}", class_name());
}

}  // namespace fullshard::formats
