// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/schema/settings.h"

#include <fmt/format.h>

#include "fullshard/config/document/reader.h"
#include "fullshard/config/schema/value_check.h"

namespace fullshard {
namespace {

template <class T>
T convert(const config::ConfigNode& node);

template <>
bool convert<bool>(const config::ConfigNode& node) {
  return node.boolean;
}
template <>
int64_t convert<int64_t>(const config::ConfigNode& node) {
  return node.integer;
}
template <>
double convert<double>(const config::ConfigNode& node) {
  return node.number;
}
template <>
std::string convert<std::string>(const config::ConfigNode& node) {
  return node.text;
}
template <>
std::vector<std::string> convert<std::vector<std::string>>(const config::ConfigNode& node) {
  std::vector<std::string> items;
  for (const config::ConfigNode& item : node.items) items.push_back(item.text);
  return items;
}
template <>
std::vector<double> convert<std::vector<double>>(const config::ConfigNode& node) {
  std::vector<double> items;
  for (const config::ConfigNode& item : node.items) items.push_back(item.number);
  return items;
}

}  // namespace

std::string Origin::text() const {
  switch (from) {
    case From::file:
      return line > 0 ? fmt::format("{}:{}", file, line) : file;
    case From::environment:
      return "environment";
    case From::flag:
      return "flag";
    case From::derived:
      return "derived";
    case From::fallback:
      break;
  }
  return "default";
}

const config::Settings::Entry* config::Settings::find(std::string_view path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : &found->second;
}

bool config::Settings::is_auto(std::string_view path) const {
  const Entry* entry = find(path);
  return entry != nullptr && fullshard::config::is_auto(entry->value, entry->key->type);
}

std::string config::Settings::variant_of(std::string_view path) const {
  const auto said = [&](std::string_view key, std::string_view fallback) {
    const Entry* entry = find(key);
    return config::plain_name(entry != nullptr ? entry->value.text : fallback);
  };
  if (path.starts_with("optimizer.params.")) return said("optimizer.type", "adamw");
  if (path.starts_with("scheduler.params.")) return said("scheduler.type", "warmupdecaylr");
  if (path.starts_with("fsdp_config.")) {
    return family() == config::Family::trainer ? said("fsdp_config.version", "2")
                                               : said("fsdp_config.fsdp_version", "1");
  }
  return "";
}

const config::SchemaKey* config::Settings::key_of(std::string_view path) const {
  return schema_->find(path, variant_of(path));
}

void config::Settings::put(std::string_view path, config::ConfigNode value, Origin origin) {
  const config::SchemaKey* key = key_of(path);
  if (key == nullptr) {
    const auto rows = schema_->find(path);
    if (rows.empty()) return;
    key = rows.front();
  }
  entries_[std::string(path)] = {key, std::move(value), std::move(origin)};
}

void config::Settings::erase(std::string_view path) {
  if (const auto found = entries_.find(path); found != entries_.end()) entries_.erase(found);
}

void config::Settings::override_with(std::string_view path, std::string_view text, Origin origin,
                                     Problems& problems) {
  const auto report = [&](std::string message, std::string suggestion, bool is_name) {
    problems.errors.push_back({.file = origin.note,
                               .key = std::string(path),
                               .message = std::move(message),
                               .suggestion = std::move(suggestion),
                               .is_name = is_name});
  };
  const config::SchemaKey* key = key_of(path);
  if (key == nullptr) {
    const size_t dot = path.rfind('.');
    const bool is_top = dot == std::string_view::npos;
    if (schema_->is_section(path)) {
      return report("is a section, expected one of its keys",
                    fmt::format("write --set {}.KEY=VALUE for each of them", path), false);
    }
    config::KeySuggestion near = config::suggest_key(*schema_, is_top ? "" : path.substr(0, dot),
                                                     is_top ? path : path.substr(dot + 1));
    return report("unknown key", std::move(near.text), near.is_name);
  }
  config::ConfigNode node = config::ConfigNode::of_plain(text, true);
  if (!text.empty() && (text[0] == '[' || text[0] == '{' || text[0] == '"')) {
    Problems inner;
    auto parsed = config::read_json(text, origin.note, inner);
    if (!parsed) {
      report(inner.errors.front().message, inner.errors.front().suggestion, false);
      return;
    }
    node = std::move(*parsed);
  }
  node.line = 0;
  config::ValueType type = key->type;
  type.is_loose = true;  // a shell strips the quotes that tell strings from numbers
  config::CheckedValue checked = config::check_value(node, type, key->fallback == "null");
  if (!checked.value) {
    report(checked.message, checked.suggestion, checked.is_name);
    return;
  }
  if (key->standing.support == config::Support::refused &&
      !config::same_value(*checked.value, config::fallback_of(*key))) {
    report(fmt::format("is not supported: {}", key->standing.note), "", false);
    return;
  }
  origin.key = path;
  // A launcher's variables repeat defaults that the user did not set.
  const bool is_asked = origin.from != Origin::From::environment ||
                        !config::same_value(*checked.value, config::fallback_of(*key));
  if (std::string remark = config::remark_on(*checked.value, *key); is_asked && !remark.empty()) {
    problems.warnings.push_back(
        {.file = origin.note, .key = std::string(path), .message = std::move(remark)});
  }
  if (!checked.remark.empty()) {
    problems.warnings.push_back(
        {.file = origin.note, .key = std::string(path), .message = checked.remark});
  }
  put(path, std::move(*checked.value), std::move(origin));
}

std::pair<config::ConfigNode, Origin> config::Settings::value_of(std::string_view path) const {
  const Entry* entry = find(path);
  const config::SchemaKey* key = key_of(path);
  if (entry != nullptr && !fullshard::config::is_auto(entry->value, entry->key->type) &&
      (entry->value.kind != config::NodeKind::null || key == nullptr)) {
    return {entry->value, entry->origin};
  }
  Origin origin;
  origin.key = path;
  if (key == nullptr) return {config::ConfigNode{}, origin};
  if (entry != nullptr) origin = entry->origin;
  const config::CheckedValue checked =
      config::check_value(config::fallback_of(*key), key->type, true);
  return {checked.value.value_or(config::ConfigNode{}), origin};
}

template <class T>
Setting<T> config::Settings::get(std::string_view path) const {
  auto [node, origin] = value_of(path);
  return {node.kind == config::NodeKind::null ? T{} : convert<T>(node), std::move(origin)};
}

template <class T>
Setting<std::optional<T>> config::Settings::get_optional(std::string_view path) const {
  auto [node, origin] = value_of(path);
  std::optional<T> value;
  if (node.kind != config::NodeKind::null) value = convert<T>(node);
  return {std::move(value), std::move(origin)};
}

template Setting<bool> config::Settings::get(std::string_view) const;
template Setting<int64_t> config::Settings::get(std::string_view) const;
template Setting<double> config::Settings::get(std::string_view) const;
template Setting<std::string> config::Settings::get(std::string_view) const;
template Setting<std::vector<std::string>> config::Settings::get(std::string_view) const;
template Setting<std::vector<double>> config::Settings::get(std::string_view) const;
template Setting<std::optional<bool>> config::Settings::get_optional(std::string_view) const;
template Setting<std::optional<int64_t>> config::Settings::get_optional(std::string_view) const;
template Setting<std::optional<double>> config::Settings::get_optional(std::string_view) const;
template Setting<std::optional<std::string>> config::Settings::get_optional(std::string_view) const;

}  // namespace fullshard
