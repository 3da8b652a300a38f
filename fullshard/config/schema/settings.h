// SPDX-License-Identifier: Apache-2.0
// A file's keys after they were looked up in the schema: one checked value per key, under the key's
// own name, with its origin. What is absent has its default.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/config/document/document.h"
#include "fullshard/config/document/problem.h"
#include "fullshard/config/schema/schema.h"
#include "fullshard/config/schema/setting.h"
#include "fullshard/config/schema/synonyms.h"

namespace fullshard::config {

class Settings {
 public:
  struct Entry {
    const SchemaKey* key = nullptr;
    ConfigNode value{};
    Origin origin{};
  };

  explicit Settings(Family family) : schema_(&Schema::of(family)) {}

  Family family() const { return schema_->family(); }
  const Schema& schema() const { return *schema_; }
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }

  // The explicit entry; null when there is none. A value of "auto" counts.
  const Entry* find(std::string_view path) const;
  bool has(std::string_view path) const { return find(path) != nullptr; }
  bool is_auto(std::string_view path) const;
  // Type or version that decides which row of a path counts.
  std::string variant_of(std::string_view path) const;
  const SchemaKey* key_of(std::string_view path) const;

  void put(std::string_view path, ConfigNode value, Origin origin);
  void erase(std::string_view path);
  // Like --set key=value: `text` is a JSON value, or a bare word.
  void override_with(std::string_view path, std::string_view text, Origin origin,
                     Problems& problems);

  // The value or the default; an unresolved "auto" gives the default. Where both are null: T's own.
  template <class T>
  Setting<T> get(std::string_view path) const;
  template <class T>
  Setting<std::optional<T>> get_optional(std::string_view path) const;

 private:
  friend class SettingsReader;
  std::pair<ConfigNode, Origin> value_of(std::string_view path) const;

  const Schema* schema_;
  std::map<std::string, Entry, std::less<>> entries_;
};

struct ReadOptions {
  bool allow_unknown = false;  // unknown keys are only warned about
};

// Decides by the keys at the top; a tie goes to DeepSpeed for JSON and to Accelerate for YAML.
Family tell_family(const ConfigNode& root, bool is_json);

Settings read_settings(const ConfigNode& root, const std::string& file, Family family,
                       const ReadOptions& options, Problems& problems);

// "did you mean": the nearest key of the section, else the place where a key of that name belongs.
// Names that other programs use come first.
KeySuggestion suggest_key(const Schema& schema, std::string_view section, std::string_view name);

}  // namespace fullshard::config
