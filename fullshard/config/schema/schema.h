// SPDX-License-Identifier: Apache-2.0
// The table of all keys that configuration files may hold: what each accepts, its default, what it
// means and which part uses it. The readers, `config explain` and docs/config_support.md
// all come from it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/config/document/document.h"

namespace fullshard::config {

// Whose keys a file holds.
enum class Family { deepspeed, accelerate, trainer };

enum class ValueKind {
  boolean,
  integer,
  number,
  text,
  choice,
  text_list,  // a single text counts as a list of one
  number_list,
  integer_list,
  open_map,  // a map whose keys are not checked
};

struct ValueType {
  ValueKind kind = ValueKind::text;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool excludes_low = false;
  // "FULL_SHARD=1|SHARD_GRAD_OP=2": spellings after = mean the same as the first.
  std::string_view choices{};
  bool any_case = false;  // and space, dash and underscore alike
  bool may_be_auto = false;
  // Accelerate: yes, "true" and 1 are booleans, "8" is a number.
  bool is_loose = false;
  // A count that other programs compute (0.9 * hidden * hidden): rounded down, with a warning.
  bool rounds_down = false;

  constexpr ValueType or_auto() const {
    ValueType type = *this;
    type.may_be_auto = true;
    return type;
  }
  constexpr ValueType loose() const {
    ValueType type = *this;
    type.is_loose = true;
    return type;
  }
};

enum class Support { honoured, differs, noted, refused };

// A noted key is accepted, but only one of its values has effect; any other gets a warning. A
// refused key may still be set to its default, which asks for nothing.
struct Standing {
  Support support = Support::honoured;
  std::string_view note{};  // the difference, or the reason
  std::string_view held{};  // noted keys: the value in effect; empty: the default
};

struct SchemaKey {
  std::string_view path;  // dotted
  ValueType type;
  std::string_view fallback;  // as JSON; "null": unset, and null may be written
  std::string_view meaning;
  std::string_view consumer;  // the part of the Plan that takes it
  Standing standing{};
  std::string_view when{};  // "adam|adamw": only for this optimizer, schedule or version
};

// Another spelling or place of a key. An empty remark is an accepted name; else it is warned about.
struct SchemaAlias {
  std::string_view from;
  std::string_view to;
  std::string_view remark{};
};

// Helpers that keep rows short.
namespace schema {
constexpr ValueType boolean() { return {.kind = ValueKind::boolean}; }
constexpr ValueType kBooleanWord = boolean().loose();  // "yes" and "on" count, as in YAML
constexpr ValueType text() { return {.kind = ValueKind::text}; }
constexpr ValueType integer(double low = 0, double high = std::numeric_limits<double>::infinity()) {
  return {.kind = ValueKind::integer, .low = low, .high = high};
}
// A count of elements, bytes or steps.
constexpr ValueType computed(double low = 0,
                             double high = std::numeric_limits<double>::infinity()) {
  return {.kind = ValueKind::integer, .low = low, .high = high, .rounds_down = true};
}
constexpr ValueType number(double low = 0, double high = std::numeric_limits<double>::infinity()) {
  return {.kind = ValueKind::number, .low = low, .high = high};
}
constexpr ValueType positive() {
  return {.kind = ValueKind::number, .low = 0, .excludes_low = true};
}
constexpr ValueType choice(std::string_view choices) {
  return {.kind = ValueKind::choice, .choices = choices};
}
constexpr ValueType any_case(std::string_view choices) {
  return {.kind = ValueKind::choice, .choices = choices, .any_case = true};
}
constexpr ValueType texts() { return {.kind = ValueKind::text_list}; }
constexpr ValueType numbers(double low, double high) {
  return {.kind = ValueKind::number_list, .low = low, .high = high};
}
constexpr ValueType integers() { return {.kind = ValueKind::integer_list, .low = 1}; }
constexpr ValueType open_map() { return {.kind = ValueKind::open_map}; }
constexpr Standing kHonoured{};
constexpr Standing differs(std::string_view note) { return {Support::differs, note}; }
constexpr Standing noted(std::string_view note, std::string_view held = {}) {
  return {Support::noted, note, held};
}
constexpr Standing refused(std::string_view note) { return {Support::refused, note}; }
}  // namespace schema

class Schema {
 public:
  static const Schema& of(Family family);

  Family family() const { return family_; }
  std::span<const SchemaKey* const> keys() const { return keys_; }  // in reading order
  std::span<const SchemaAlias> aliases() const { return aliases_; }

  // All rows of a path: several where they depend on a type or version.
  std::vector<const SchemaKey*> find(std::string_view path) const;
  // The row for that type or version; null when the path is not one of its keys.
  const SchemaKey* find(std::string_view path, std::string_view variant) const;
  bool is_section(std::string_view path) const;
  // Names that are allowed in a section (empty: at the top).
  std::vector<std::string> names_in(std::string_view section) const;
  // Paths that end in that name.
  std::vector<std::string> places_of(std::string_view name) const;

 private:
  Schema(Family family, std::vector<std::span<const SchemaKey>> tables,
         std::span<const SchemaAlias> aliases);

  Family family_;
  std::vector<const SchemaKey*> keys_;
  std::vector<const SchemaKey*> by_path_;   // sorted
  std::vector<std::string_view> sections_;  // sorted
  std::span<const SchemaAlias> aliases_;
};

// The tables, one function per family and file.
std::span<const SchemaKey> deepspeed_root_keys();
std::span<const SchemaKey> deepspeed_zero_keys();
std::span<const SchemaKey> deepspeed_optimizer_keys();
std::span<const SchemaKey> deepspeed_other_keys();
std::span<const SchemaAlias> deepspeed_aliases();
std::span<const SchemaKey> accelerate_keys();
std::span<const SchemaKey> accelerate_other_keys();
std::span<const SchemaAlias> accelerate_aliases();
std::span<const SchemaKey> xla_keys();
std::span<const SchemaKey> trainer_keys();
std::span<const SchemaAlias> trainer_aliases();

std::string_view name_of(Family family);
// Whether a row's `when` covers a type or version; an empty `when` covers all.
bool covers(std::string_view when, std::string_view variant);
// "from 0 to 3", "one of cpu, nvme or none": what a type accepts, for messages and pages.
std::string describe(const ValueType& type);
// The default as a value.
ConfigNode fallback_of(const SchemaKey& key);
// The choices without their other spellings.
std::vector<std::string> choices_of(const ValueType& type);

}  // namespace fullshard::config
