// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "fullshard/base/closest.h"
#include "fullshard/config/schema/settings.h"
#include "fullshard/config/schema/value_check.h"

namespace fullshard::config {
namespace {

std::string join(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

// The nearest key is searched among all names, so only this many suggestions are made.
constexpr int kMostSuggested = 100;

// The only name that contains the word and is at most twice as long: "transformer_layer_cls" has a
// larger edit distance to "transformer_layer_cls_to_wrap" than a misspelt word.
std::optional<std::string> only_longer(std::string_view word, std::span<const std::string> names) {
  std::optional<std::string> found;
  for (const std::string& name : names) {
    if (name.find(word) == std::string::npos || name.size() > 2 * word.size()) continue;
    if (found) return std::nullopt;
    found = name;
  }
  return found;
}

// Sections whose keys may be written with or without the section's prefix.
struct PrefixRule {
  Family family;
  std::string_view section;
  std::string_view prefix;
};
constexpr std::array kPrefixes = {
    PrefixRule{Family::accelerate, "fsdp_config.", "fsdp_"},
    PrefixRule{Family::trainer, "fsdp_config.", "fsdp_"},
    PrefixRule{Family::accelerate, "parallelism_config.", "parallelism_config_"},
    PrefixRule{Family::accelerate, "dynamo_config.", "dynamo_"},
    PrefixRule{Family::accelerate, "fp8_config.", "fp8_"},
};

// Keys that guides name but no program reads.
struct NeedlessKey {
  std::string_view name;
  std::string_view advice;
};
constexpr std::array kNeedless = {
    NeedlessKey{"is_deepspeed_zero3_enabled", "leave it out: zero_optimization.stage decides it"},
};

}  // namespace

class SettingsReader {
 public:
  SettingsReader(const ConfigNode& root, const std::string& file, Family family,
                 const ReadOptions& options, Problems& problems)
      : root_(root),
        file_(file),
        options_(options),
        problems_(problems),
        settings_(family),
        schema_(Schema::of(family)) {}

  Settings read() {
    note_variants();
    // A bare fsdp_config holds the keys of the section at its top.
    const bool is_bare = schema_.family() == Family::trainer && root_.find("fsdp") == nullptr &&
                         root_.find("fsdp_config") == nullptr;
    read_section(root_, "", is_bare ? "fsdp_config" : "");
    return std::move(settings_);
  }

 private:
  void report(std::vector<Problem>& list, const std::string& key, int line, std::string message,
              std::string suggestion = "", bool is_name = false) {
    list.push_back({.file = file_,
                    .line = line,
                    .key = key,
                    .message = std::move(message),
                    .suggestion = std::move(suggestion),
                    .is_name = is_name});
  }

  // Types and versions come first, whatever the order of the file: other keys depend on them.
  void note_variants() {
    const auto note = [&](std::initializer_list<std::string_view> path, std::string_view key) {
      const ConfigNode* node = &root_;
      for (const std::string_view name : path) {
        if (node != nullptr) node = node->find(name);
      }
      if (node == nullptr || settings_.has(key)) return;
      const SchemaKey* row = schema_.find(key, "");
      CheckedValue checked = check_value(*node, row->type, false);
      if (checked.value) settings_.put(key, std::move(*checked.value), {});
    };
    switch (schema_.family()) {
      case Family::deepspeed:
        note({"optimizer", "type"}, "optimizer.type");
        note({"scheduler", "type"}, "scheduler.type");
        break;
      case Family::accelerate:
        note({"fsdp_config", "fsdp_version"}, "fsdp_config.fsdp_version");
        note({"fsdp_config", "version"}, "fsdp_config.fsdp_version");
        break;
      case Family::trainer:
        for (const std::string_view name : {"version", "fsdp_version"}) {
          note({"fsdp_config", name}, "fsdp_config.version");
          note({name}, "fsdp_config.version");
        }
        break;
    }
    noted_ = settings_.entries_;
  }

  void read_section(const ConfigNode& node, const std::string& written,
                    const std::string& section) {
    for (const Member& member : node.members) {
      read_member(member, join(written, member.name), resolve(join(section, member.name)));
    }
  }

  struct Place {
    std::string path;
    std::string_view remark{};
  };

  // The key's own path, by alias or prefix.
  Place resolve(const std::string& path) const {
    if (!schema_.find(path).empty() || schema_.is_section(path)) return {path};
    if (const SchemaAlias* alias = find_alias(path)) return {std::string(alias->to), alias->remark};
    for (const PrefixRule& rule : kPrefixes) {
      if (rule.family != schema_.family() || !path.starts_with(rule.section)) continue;
      const std::string_view name = std::string_view(path).substr(rule.section.size());
      const std::string other =
          name.starts_with(rule.prefix)
              ? fmt::format("{}{}", rule.section, name.substr(rule.prefix.size()))
              : fmt::format("{}{}{}", rule.section, rule.prefix, name);
      if (!schema_.find(other).empty() || schema_.is_section(other)) return {other};
      if (const SchemaAlias* alias = find_alias(other)) {
        return {std::string(alias->to), alias->remark};
      }
    }
    return {path};
  }
  const SchemaAlias* find_alias(std::string_view path) const {
    for (const SchemaAlias& alias : schema_.aliases()) {
      if (alias.from == path) return &alias;
    }
    return nullptr;
  }

  void read_member(const Member& member, const std::string& written, const Place& place) {
    if (!place.remark.empty()) warn_of_alias(member, written, place);
    if (schema_.is_section(place.path)) {
      read_map(member, written, place.path);
    } else if (!schema_.find(place.path).empty()) {
      read_value(member, written, place.path);
    } else if (member.name.starts_with('_')) {
      report(problems_.warnings, written, member.line,
             "begins with an underscore, as comments do; ignored");
    } else {
      report_unknown(member, written);
    }
  }
  void warn_of_alias(const Member& member, const std::string& written, const Place& place) {
    const bool is_old = place.remark.starts_with("is the old name");
    report(problems_.warnings, written, member.line,
           is_old ? fmt::format("{} of {}", place.remark, place.path) : std::string(place.remark),
           is_old ? "" : fmt::format("write {}", place.path));
  }

  void read_map(const Member& member, const std::string& written, const std::string& path) {
    const ConfigNode& value = member.value;
    if (value.kind == NodeKind::map) {
      read_section(value, written, path);
      check_type_given(member, written, path);
    } else if (path == "zero_optimization" && value.kind == NodeKind::boolean) {
      // DeepSpeed's first format: true is stage 1.
      report(problems_.warnings, written, member.line,
             fmt::format("is the old form of stage {}", value.boolean ? 1 : 0),
             "write {\"stage\": 1}");
      store("zero_optimization.stage", ConfigNode::of_integer(value.boolean ? 1 : 0), written,
            member.line);
    } else if (value.kind != NodeKind::null) {
      report(problems_.errors, written, member.line,
             fmt::format("is {}, expected a map of keys", value.kind == NodeKind::text
                                                              ? fmt::format("\"{}\"", value.text)
                                                              : std::string(name_of(value.kind))));
    }
  }
  // An optimizer or schedule without a type would be ignored by DeepSpeed.
  void check_type_given(const Member& member, const std::string& written, const std::string& path) {
    if (schema_.family() != Family::deepspeed || (path != "optimizer" && path != "scheduler")) {
      return;
    }
    if (member.value.find("type") == nullptr && !member.value.members.empty()) {
      report(problems_.errors, written, member.line, "has no type",
             fmt::format("add \"type\": \"{}\"", path == "optimizer" ? "AdamW" : "WarmupLR"));
    }
  }

  void report_unknown(const Member& member, const std::string& written) {
    const size_t dot = written.rfind('.');
    const std::string section = dot == std::string::npos ? "" : written.substr(0, dot);
    KeySuggestion near;
    if (++unknown_ <= kMostSuggested) {
      near = suggest_known(resolve(section).path, member.name);
      if (near.text.empty() && section.empty()) near = {suggest_elsewhere(member.name), true};
    }
    auto& list = options_.allow_unknown ? problems_.warnings : problems_.errors;
    report(list, written, member.line,
           options_.allow_unknown ? "unknown key, ignored" : "unknown key", near.text,
           near.is_name);
    list.back().is_unknown_key = true;
  }
  KeySuggestion suggest_known(std::string_view section, std::string_view name) const {
    for (const NeedlessKey& key : kNeedless) {
      if (key.name == name) return {std::string(key.advice)};
    }
    return suggest_key(schema_, section, name);
  }
  // A key of another family, when this one has none like it.
  std::string suggest_elsewhere(std::string_view name) const {
    for (const Family family : {Family::deepspeed, Family::accelerate, Family::trainer}) {
      if (family == schema_.family()) continue;
      if (auto near = base::closest(name, Schema::of(family).names_in(""))) return *near;
    }
    return "";
  }

  void read_value(const Member& member, const std::string& written, const std::string& path) {
    const std::string variant = settings_.variant_of(path);
    const bool is_unknown_type = path.starts_with("optimizer.params.") && !is_supported(variant);
    if (is_unknown_type) return;  // the type is already reported
    const SchemaKey* key = schema_.find(path, variant);
    if (key == nullptr) {
      report_wrong_variant(member, written, path);
      return;
    }
    const bool may_be_null = key->fallback == "null" || schema_.family() != Family::deepspeed;
    CheckedValue checked = check_value(member.value, key->type, may_be_null);
    if (!checked.value) {
      report(problems_.errors, written, member.value.line, std::move(checked.message),
             std::move(checked.suggestion), checked.is_name);
      return;
    }
    if (checked.value->kind == NodeKind::null) return;
    if (key->standing.support == Support::refused && !is_harmless(*checked.value, *key)) {
      report(problems_.errors, written, member.line,
             fmt::format("is not supported: {}", key->standing.note));
      return;
    }
    if (!checked.remark.empty()) {
      report(problems_.warnings, written, member.value.line, checked.remark);
    }
    remark(*checked.value, *key, written, member.line);
    store(path, std::move(*checked.value), written, member.line);
  }
  // In a section that can be switched on, only the switch gets a warning.
  void remark(const ConfigNode& value, const SchemaKey& key, const std::string& written, int line) {
    const std::string switched = fmt::format("{}.enabled", key.path.substr(0, key.path.rfind('.')));
    if (key.path != switched && !schema_.find(switched).empty()) return;
    std::string text = remark_on(value, key);
    if (!text.empty()) report(problems_.warnings, written, line, std::move(text));
  }
  static bool is_supported(std::string_view optimizer) {
    static constexpr std::array<std::string_view, 7> kNames = {
        "adam", "adamw", "adagrad", "lamb", "lion", "onebitadam", "sgd"};
    return std::find(kNames.begin(), kNames.end(), optimizer) != kNames.end();
  }
  void report_wrong_variant(const Member& member, const std::string& written,
                            const std::string& path) {
    if (path.starts_with("fsdp_config.")) {
      report(problems_.errors, written, member.line,
             fmt::format("is not a key of version {}", settings_.variant_of(path)));
      return;
    }
    const bool is_optimizer = path.starts_with("optimizer.");
    const std::string type =
        settings_.get<std::string>(is_optimizer ? "optimizer.type" : "scheduler.type").value;
    report(problems_.errors, written, member.line, fmt::format("is not a parameter of {}", type));
  }
  // The default asks for nothing, and neither does a section that is switched off.
  bool is_harmless(const ConfigNode& value, const SchemaKey& key) const {
    if (key.type.kind == ValueKind::open_map) {
      const ConfigNode* enabled = value.find("enabled");
      return value.members.empty() || (value.members.size() == 1 && enabled != nullptr &&
                                       enabled->kind == NodeKind::boolean && !enabled->boolean);
    }
    if (same_value(value, check_value(fallback_of(key), key.type, true).value.value_or(value))) {
      return key.fallback != "null";
    }
    const std::string section(key.path.substr(0, key.path.find('.')));
    if (key.path == section + ".enabled" || schema_.find(section + ".enabled").empty())
      return false;
    const ConfigNode* map = root_.find(section);
    const ConfigNode* enabled = map != nullptr ? map->find("enabled") : nullptr;
    return enabled == nullptr || !enabled->boolean;
  }

  void store(const std::string& path, ConfigNode value, const std::string& written, int line) {
    const Settings::Entry* other = settings_.find(path);
    const bool is_noted = noted_.erase(path) > 0;  // only its type or version was looked up
    if (other != nullptr && !is_noted) {
      report(problems_.errors, written, line,
             fmt::format("says the same as {} on line {}", other->origin.key, other->origin.line),
             "keep one of them");
      return;
    }
    settings_.put(path, std::move(value),
                  {.from = Origin::From::file, .file = file_, .line = line, .key = written});
  }

  const ConfigNode& root_;
  const std::string& file_;
  const ReadOptions& options_;
  Problems& problems_;
  Settings settings_;
  const Schema& schema_;
  std::map<std::string, Settings::Entry, std::less<>> noted_;
  int unknown_ = 0;
};

KeySuggestion suggest_key(const Schema& schema, std::string_view section, std::string_view name) {
  KeySuggestion synonym = suggest_synonym(schema, section, name);
  if (synonym.is_name) return synonym;
  if (const auto near = base::closest(name, schema.names_in(section))) {
    return {join(section, *near), true};
  }
  if (const auto longer = only_longer(name, schema.names_in(section))) {
    return {join(section, *longer), true};
  }
  const auto places = schema.places_of(name);
  return places.size() == 1 ? KeySuggestion{places.front(), true} : synonym;
}

Family tell_family(const ConfigNode& root, bool is_json) {
  const auto count = [&](Family family) {
    const Schema& schema = Schema::of(family);
    int known = 0;
    for (const Member& member : root.members) {
      known += !schema.find(member.name).empty() || schema.is_section(member.name) ? 1 : 0;
    }
    return known;
  };
  const auto count_bare = [&] {
    const std::vector<std::string> names = Schema::of(Family::trainer).names_in("fsdp_config");
    int known = 0;
    for (const Member& member : root.members) {
      std::string_view name = member.name;
      if (name.starts_with("fsdp_")) name.remove_prefix(5);
      known += std::find(names.begin(), names.end(), name) != names.end() ? 1 : 0;
    }
    return known;
  };
  const int deepspeed = count(Family::deepspeed);
  const int accelerate = count(Family::accelerate);
  const int trainer = root.find("fsdp") != nullptr || root.find("fsdp_config") != nullptr
                          ? count(Family::trainer)
                          : count_bare();
  const bool names_type = root.find("distributed_type") != nullptr;
  if (names_type || accelerate > std::max(deepspeed, trainer)) return Family::accelerate;
  if (deepspeed > std::max(accelerate, trainer)) return Family::deepspeed;
  if (trainer > std::max(accelerate, deepspeed)) return Family::trainer;
  if (trainer > 0 && is_json && trainer >= accelerate) return Family::trainer;
  return is_json ? Family::deepspeed : Family::accelerate;
}

Settings read_settings(const ConfigNode& root, const std::string& file, Family family,
                       const ReadOptions& options, Problems& problems) {
  return SettingsReader(root, file, family, options, problems).read();
}

}  // namespace fullshard::config
