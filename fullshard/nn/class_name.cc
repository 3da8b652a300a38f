// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/class_name.h"

#include <c10/util/Type.h>

#include "fullshard/nn/unit_state.h"

namespace fullshard::nn {
namespace {

constexpr std::string_view kSuffix = "Impl";

struct NameRange {
  size_t begin = 0;
  size_t end = 0;  // where template arguments begin, or the end of the text
};

// The last part of a qualified name. Colons inside <> and () belong to arguments of enclosing
// templates and functions.
NameRange last_part(std::string_view type) {
  NameRange range{0, type.size()};
  int depth = 0;
  for (size_t i = 0; i < type.size(); ++i) {
    if (type[i] == '<' && depth == 0) range.end = i;
    if (type[i] == '<' || type[i] == '(') ++depth;
    if (type[i] == '>' || type[i] == ')') --depth;
    if (type[i] == ':' && depth == 0) range = {i + 1, type.size()};
  }
  return range;
}

}  // namespace

std::string plain_class_name(std::string_view demangled) {
  const auto [begin, end] = last_part(demangled);
  std::string_view name = demangled.substr(begin, end - begin);
  if (name.size() > kSuffix.size() && name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  return std::string(name) + std::string(demangled.substr(end));
}

std::string plain_class_name(const std::type_info& type) {
  return plain_class_name(c10::demangle(type.name()));
}

std::string class_name_of(const torch::nn::Module& module) {
  if (const auto* unit = dynamic_cast<const UnitState*>(&module)) return unit->class_name();
  return plain_class_name(module.name());
}

}  // namespace fullshard::nn
