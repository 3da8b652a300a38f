// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/schema/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <set>

#include "fullshard/config/document/reader.h"

namespace fullshard::config {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

struct ByPath {
  bool operator()(const SchemaKey* a, std::string_view b) const { return a->path < b; }
  bool operator()(std::string_view a, const SchemaKey* b) const { return a < b->path; }
};

std::string describe_range(const ValueType& type, std::string_view what) {
  const bool has_high = std::isfinite(type.high);
  if (!std::isfinite(type.low) && !has_high) return fmt::format("{}", what);
  if (type.low == type.high) return fmt::format("{}", format_number(type.low));
  if (has_high) {
    return fmt::format("{} from {} to {}", what, format_number(type.low), format_number(type.high));
  }
  if (type.excludes_low) return fmt::format("{} above {}", what, format_number(type.low));
  return fmt::format("{} of at least {}", what, format_number(type.low));
}

}  // namespace

Schema::Schema(Family family, std::vector<std::span<const SchemaKey>> tables,
               std::span<const SchemaAlias> aliases)
    : family_(family), aliases_(aliases) {
  std::set<std::string_view> sections;
  for (const auto& table : tables) {
    for (const SchemaKey& key : table) {
      keys_.push_back(&key);
      for (size_t dot = key.path.find('.'); dot != std::string_view::npos;
           dot = key.path.find('.', dot + 1)) {
        sections.insert(key.path.substr(0, dot));
      }
    }
  }
  by_path_ = keys_;
  std::stable_sort(by_path_.begin(), by_path_.end(),
                   [](const SchemaKey* a, const SchemaKey* b) { return a->path < b->path; });
  sections_.assign(sections.begin(), sections.end());
}

const Schema& Schema::of(Family family) {
  static const Schema deepspeed(Family::deepspeed,
                                {deepspeed_root_keys(), deepspeed_zero_keys(),
                                 deepspeed_optimizer_keys(), deepspeed_other_keys()},
                                deepspeed_aliases());
  static const Schema accelerate(Family::accelerate,
                                 {accelerate_keys(), xla_keys(), accelerate_other_keys()},
                                 accelerate_aliases());
  static const Schema trainer(Family::trainer, {trainer_keys(), xla_keys()}, trainer_aliases());
  switch (family) {
    case Family::deepspeed:
      return deepspeed;
    case Family::accelerate:
      return accelerate;
    case Family::trainer:
      break;
  }
  return trainer;
}

std::vector<const SchemaKey*> Schema::find(std::string_view path) const {
  const auto [first, last] = std::equal_range(by_path_.begin(), by_path_.end(), path, ByPath{});
  return {first, last};
}

const SchemaKey* Schema::find(std::string_view path, std::string_view variant) const {
  for (const SchemaKey* key : find(path)) {
    if (covers(key->when, variant)) return key;
  }
  return nullptr;
}

bool Schema::is_section(std::string_view path) const {
  return std::binary_search(sections_.begin(), sections_.end(), path);
}

std::vector<std::string> Schema::names_in(std::string_view section) const {
  std::set<std::string> names;
  const auto add = [&](std::string_view path) {
    if (!section.empty()) {
      if (!path.starts_with(section) || path.size() <= section.size() ||
          path[section.size()] != '.') {
        return;
      }
      path.remove_prefix(section.size() + 1);
    }
    names.emplace(path.substr(0, path.find('.')));
  };
  for (const SchemaKey* key : keys_) add(key->path);
  for (const SchemaAlias& alias : aliases_) {
    if (alias.remark.empty()) add(alias.from);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> Schema::places_of(std::string_view name) const {
  std::vector<std::string> places;
  for (const SchemaKey* key : keys_) {
    const size_t dot = key->path.rfind('.');
    if (dot == std::string_view::npos || key->path.substr(dot + 1) != name) continue;
    if (places.empty() || places.back() != key->path) places.emplace_back(key->path);
  }
  return places;
}

std::string_view name_of(Family family) {
  switch (family) {
    case Family::deepspeed:
      return "DeepSpeed";
    case Family::accelerate:
      return "Accelerate";
    case Family::trainer:
      break;
  }
  return "Trainer";
}

bool covers(std::string_view when, std::string_view variant) {
  if (when.empty()) return true;
  const auto parts = split(when, '|');
  return std::find(parts.begin(), parts.end(), variant) != parts.end();
}

std::vector<std::string> choices_of(const ValueType& type) {
  std::vector<std::string> names;
  for (const std::string_view choice : split(type.choices, '|')) {
    names.emplace_back(choice.substr(0, choice.find('=')));
  }
  return names;
}

std::string describe(const ValueType& type) {
  const std::string automatic = type.may_be_auto ? " or \"auto\"" : "";
  switch (type.kind) {
    case ValueKind::boolean:
      return "true or false" + automatic;
    case ValueKind::integer:
      return describe_range(type, "an integer") + automatic;
    case ValueKind::number:
      return describe_range(type, "a number") + automatic;
    case ValueKind::text:
      return "a string" + automatic;
    case ValueKind::choice:
      return fmt::format("one of {}", fmt::join(choices_of(type), ", ")) + automatic;
    case ValueKind::text_list:
      return "a list of strings" + automatic;
    case ValueKind::number_list:
      return describe_range(type, "a list of numbers") + automatic;
    case ValueKind::integer_list:
      return "a list of integers" + automatic;
    case ValueKind::open_map:
      return "a map";
  }
  return "";
}

ConfigNode fallback_of(const SchemaKey& key) {
  const std::string_view text = key.fallback;
  if (text.starts_with('[') || text.starts_with('{') || text.starts_with('"')) {
    Problems problems;
    auto node = read_json(text, "", problems);
    assert(node);
    node->line = 0;
    return std::move(*node);
  }
  return ConfigNode::of_plain(text, false);
}

}  // namespace fullshard::config
