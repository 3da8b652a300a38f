// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/json_records.h"

#include <algorithm>
#include <vector>

#include "fullshard/base/json_text.h"
#include "fullshard/base/printable.h"

namespace fullshard::data {
namespace {

Json parse_line(const TextBlock& block, std::string_view line, int64_t number) {
  try {
    return base::parse_json<Json>(line);
  } catch (const base::JsonError& error) {
    fail_at(block, number, "{}; expected one object per line", error.what());
  }
}

Json parse_array(const TextBlock& block) {
  try {
    return base::parse_json<Json>(block.text);
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::input, "{}: {}; expected an array of objects", block.file->name(),
            error.what());
  }
}

}  // namespace

void for_each_line(const TextBlock& block,
                   const std::function<bool(std::string_view line, int64_t number)>& act) {
  std::string_view rest = block.text;
  for (int64_t number = block.first_line; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool is_blank = line.find_first_not_of(" \t") == std::string_view::npos;
    if (!is_blank && !act(line, number)) return;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

void for_each_object(const TextBlock& block,
                     const std::function<bool(const Json& object, int64_t number)>& act) {
  const auto take = [&](const Json& record, int64_t number) {
    if (!record.is_object()) {
      fail_at(block, number, "is {}, expected an object", record.type_name());
    }
    return act(record, number);
  };
  if (!block.is_array) {
    return for_each_line(block, [&](std::string_view line, int64_t number) {
      return take(parse_line(block, line, number), number);
    });
  }
  int64_t number = 0;
  for (const Json& record : parse_array(block)) {
    if (!take(record, ++number)) return;
  }
}

std::string string_in(const TextBlock& block, int64_t number, const Json& object,
                      const std::string& field) {
  const auto found = object.find(field);
  if (found == object.end()) {
    fail_at(block, number, "has no field '{}'; its fields: {}", field, names_in(object));
  }
  if (!found->is_string()) {
    fail_at(block, number, "field '{}' is {}, expected a string", field, found->type_name());
  }
  return found->get<std::string>();
}

std::string names_in(const Json& object) {
  constexpr size_t kMostShown = 500;  // bytes
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  std::ranges::sort(names);
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + base::printable(name, 100);
    if (text.size() > kMostShown) return text + ", \u2026";
  }
  return text.empty() ? "none" : text;
}

}  // namespace fullshard::data
