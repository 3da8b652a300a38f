// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/schema/value_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fullshard/base/closest.h"
#include "fullshard/base/printable.h"

namespace fullshard::config {
namespace {

// Integers beyond it are not exact as a double, and no setting needs them.
constexpr double kLargestInteger = 9.2e18;
constexpr size_t kMostTextShown = 200;  // bytes of a text in a message

CheckedValue accept(ConfigNode value, int line) {
  value.line = line;
  return {.value = std::move(value)};
}

CheckedValue reject(const ConfigNode& node, const ValueType& type, std::string suggestion = "") {
  const std::string found = node.kind == NodeKind::list || node.kind == NodeKind::map
                                ? std::string(name_of(node.kind))
                            : node.kind == NodeKind::text
                                ? fmt::format("\"{}\"", base::printable(node.text, kMostTextShown))
                                : node.text;
  return {
      .message = fmt::format("is {}, expected {}", found.empty() ? "empty" : found, describe(type)),
      .suggestion = std::move(suggestion)};
}

std::optional<bool> loose_truth(const ConfigNode& node) {
  static constexpr std::array<std::string_view, 6> kTrue = {"y", "yes", "t", "true", "on", "1"};
  static constexpr std::array<std::string_view, 6> kFalse = {"n", "no", "f", "false", "off", "0"};
  const std::string word = plain_name(node.text);
  if (std::find(kTrue.begin(), kTrue.end(), word) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), word) != kFalse.end()) return false;
  return std::nullopt;
}

CheckedValue check_boolean(const ConfigNode& node, const ValueType& type) {
  if (node.kind == NodeKind::boolean)
    return accept(ConfigNode::of_boolean(node.boolean), node.line);
  const auto truth = loose_truth(node);
  if (truth && type.is_loose) return accept(ConfigNode::of_boolean(*truth), node.line);
  return reject(node, type,
                truth ? fmt::format("write {}", *truth ? "true" : "false") : std::string());
}

bool is_in_range(double value, const ValueType& type) {
  return std::isfinite(value) && value <= type.high &&
         (type.excludes_low ? value > type.low : value >= type.low);
}

CheckedValue check_number(const ConfigNode& node, const ValueType& type) {
  ConfigNode number = node;
  if (node.kind == NodeKind::text) {
    number = ConfigNode::of_plain(node.text, false);
    const bool is_number = number.kind == NodeKind::integer || number.kind == NodeKind::number;
    if (is_number && !type.is_loose) {
      return reject(node, type, fmt::format("write {} without quotes", node.text));
    }
  }
  if (number.kind != NodeKind::integer && number.kind != NodeKind::number) {
    return reject(node, type);
  }
  if (!is_in_range(number.number, type)) return reject(node, type);
  if (type.kind == ValueKind::number || type.kind == ValueKind::number_list) {
    return accept(ConfigNode::of_number(number.number), node.line);
  }
  if (number.kind == NodeKind::integer) {
    return accept(ConfigNode::of_integer(number.integer), node.line);
  }
  const double whole = std::floor(number.number);
  const bool is_whole = whole == number.number || (type.rounds_down && is_in_range(whole, type));
  if (!is_whole || std::abs(whole) > kLargestInteger) return reject(node, type);
  CheckedValue count = accept(ConfigNode::of_integer(static_cast<int64_t>(whole)), node.line);
  if (whole != number.number) {
    count.remark = fmt::format("is {}, rounded down to {}", node.text, count.value->integer);
  }
  return count;
}

// The first spelling of the choice that `word` is.
std::optional<std::string> find_choice(std::string_view word, const ValueType& type) {
  const std::string wanted = type.any_case ? plain_name(word) : std::string(word);
  std::string_view rest = type.choices;
  while (!rest.empty()) {
    std::string_view choice = rest.substr(0, rest.find('|'));
    rest.remove_prefix(std::min(choice.size() + 1, rest.size()));
    const std::string_view first = choice.substr(0, choice.find('='));
    while (!choice.empty()) {
      const std::string_view spelling = choice.substr(0, choice.find('='));
      choice.remove_prefix(std::min(spelling.size() + 1, choice.size()));
      if (wanted == (type.any_case ? plain_name(spelling) : std::string(spelling))) {
        return std::string(first);
      }
    }
  }
  return std::nullopt;
}

CheckedValue check_choice(const ConfigNode& node, const ValueType& type) {
  const bool is_word = node.kind == NodeKind::text ||
                       (type.is_loose && node.kind != NodeKind::list && node.kind != NodeKind::map);
  if (!is_word) return reject(node, type);
  if (auto choice = find_choice(node.text, type)) {
    return accept(ConfigNode::of_text(std::move(*choice)), node.line);
  }
  CheckedValue result = reject(node, type);
  const std::vector<std::string> names = choices_of(type);
  std::vector<std::string> plain;
  for (const std::string& name : names) plain.push_back(plain_name(name));
  if (const auto near = base::closest(plain_name(node.text), plain)) {
    const auto at = std::find(plain.begin(), plain.end(), *near) - plain.begin();
    result.suggestion = names[static_cast<size_t>(at)];
    result.is_name = true;
  }
  return result;
}

CheckedValue check_list(const ConfigNode& node, const ValueType& type) {
  ConfigNode list;
  list.kind = NodeKind::list;
  if (node.kind != NodeKind::list) {
    const bool is_one =
        type.kind == ValueKind::text_list &&
        (node.kind == NodeKind::text || (type.is_loose && node.kind != NodeKind::map));
    if (!is_one) return reject(node, type);
    list.items.push_back(ConfigNode::of_text(node.text));
    return accept(std::move(list), node.line);
  }
  for (const ConfigNode& item : node.items) {
    if (type.kind == ValueKind::text_list) {
      if (item.kind != NodeKind::text && !type.is_loose) return reject(item, type);
      list.items.push_back(
          ConfigNode::of_text(item.kind == NodeKind::list ? to_json(item) : item.text));
      continue;
    }
    CheckedValue checked = check_number(item, type);
    if (!checked.value) return checked;
    list.items.push_back(std::move(*checked.value));
  }
  return accept(std::move(list), node.line);
}

}  // namespace

std::string plain_name(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    c = c == ' ' || c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

bool is_auto(const ConfigNode& node, const ValueType& type) {
  return type.may_be_auto && node.kind == NodeKind::text && node.text == "auto";
}

std::string remark_on(const ConfigNode& value, const SchemaKey& key) {
  const Standing& standing = key.standing;
  if (standing.support != Support::noted || is_auto(value, key.type)) return "";
  const ConfigNode held =
      standing.held.empty() ? fallback_of(key) : ConfigNode::of_plain(standing.held, false);
  const auto checked = check_value(held, key.type, true).value;
  if (checked && same_value(*checked, value)) return "";
  return fmt::format("without effect: {}", standing.note);
}

CheckedValue check_value(const ConfigNode& node, const ValueType& type, bool may_be_null) {
  if (is_auto(node, type) || (node.kind == NodeKind::null && may_be_null)) return {.value = node};
  switch (type.kind) {
    case ValueKind::boolean:
      return check_boolean(node, type);
    case ValueKind::integer:
    case ValueKind::number:
      return check_number(node, type);
    case ValueKind::text:
      if (node.kind == NodeKind::text) return accept(node, node.line);
      if (type.is_loose && node.kind != NodeKind::list && node.kind != NodeKind::map) {
        return accept(ConfigNode::of_text(node.text), node.line);
      }
      return reject(node, type);
    case ValueKind::choice:
      return check_choice(node, type);
    case ValueKind::text_list:
    case ValueKind::number_list:
    case ValueKind::integer_list:
      return check_list(node, type);
    case ValueKind::open_map:
      if (node.kind == NodeKind::map || node.kind == NodeKind::null) return {.value = node};
      return reject(node, type);
  }
  return reject(node, type);
}

}  // namespace fullshard::config
