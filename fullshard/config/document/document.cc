// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/document/document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "fullshard/base/utf8_character.h"

namespace fullshard::config {
namespace {

std::optional<bool> truth_of(std::string_view text, bool words) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "true" || (words && (lower == "yes" || lower == "on"))) return true;
  if (lower == "false" || (words && (lower == "no" || lower == "off"))) return false;
  return std::nullopt;
}

// Underscores group digits in YAML 1.1.
std::string without_underscores(std::string_view text) {
  std::string digits(text);
  std::erase(digits, '_');
  return digits;
}

bool looks_like_number(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (!text.empty() && text[0] == '.') text.remove_prefix(1);
  return !text.empty() && text[0] >= '0' && text[0] <= '9';
}

}  // namespace

const ConfigNode* ConfigNode::find(std::string_view name) const {
  for (const Member& member : members) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

ConfigNode ConfigNode::of_boolean(bool value) {
  ConfigNode node;
  node.kind = NodeKind::boolean;
  node.boolean = value;
  node.text = value ? "true" : "false";
  return node;
}

ConfigNode ConfigNode::of_integer(int64_t value) {
  ConfigNode node;
  node.kind = NodeKind::integer;
  node.integer = value;
  node.number = static_cast<double>(value);
  node.text = std::to_string(value);
  return node;
}

ConfigNode ConfigNode::of_number(double value) {
  ConfigNode node;
  node.kind = NodeKind::number;
  node.number = value;
  node.text = format_number(value);
  return node;
}

ConfigNode ConfigNode::of_text(std::string value) {
  ConfigNode node;
  node.kind = NodeKind::text;
  node.text = std::move(value);
  return node;
}

ConfigNode ConfigNode::of_plain(std::string_view text, bool words) {
  ConfigNode node;
  node.text = text;
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return node;
  }
  if (const auto truth = truth_of(text, words)) {
    node.kind = NodeKind::boolean;
    node.boolean = *truth;
    return node;
  }
  node.kind = NodeKind::text;
  if (!looks_like_number(text)) return node;
  std::string digits = without_underscores(text);
  if (digits[0] == '+') digits.erase(0, 1);
  const char* const end = digits.data() + digits.size();
  if (const auto [stop, error] = std::from_chars(digits.data(), end, node.integer);
      stop == end && error == std::errc()) {
    node.kind = NodeKind::integer;
    node.number = static_cast<double>(node.integer);
    return node;
  }
  if (const auto [stop, error] = std::from_chars(digits.data(), end, node.number);
      stop == end && error == std::errc()) {
    node.kind = NodeKind::number;
  }
  return node;
}

std::string_view name_of(NodeKind kind) {
  static constexpr std::array<std::string_view, 7> kNames = {
      "null", "a boolean", "an integer", "a number", "a string", "a list", "a map"};
  return kNames[static_cast<size_t>(kind)];
}

std::string quote_json(std::string_view text) {
  std::string quoted = "\"";
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t length = base::utf8_character_length(text.substr(at));
    if (length == 0) {
      quoted += "\\ufffd";  // JSON is UTF-8
    } else if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      quoted += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      quoted += text.substr(at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  return quoted + '"';
}

std::string format_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string to_json(const ConfigNode& node) {
  switch (node.kind) {
    case NodeKind::null:
      return "null";
    case NodeKind::boolean:
      return node.boolean ? "true" : "false";
    case NodeKind::integer:
      return fmt::format("{}", node.integer);
    case NodeKind::number:
      // JSON has no infinity.
      return std::isfinite(node.number) ? fmt::format("{}", node.number) : quote_json(node.text);
    case NodeKind::text:
      return quote_json(node.text);
    case NodeKind::list: {
      std::vector<std::string> parts;
      for (const ConfigNode& item : node.items) parts.push_back(to_json(item));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
    case NodeKind::map: {
      std::vector<std::string> parts;
      for (const Member& member : node.members) {
        parts.push_back(quote_json(member.name) + ": " + to_json(member.value));
      }
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
    }
  }
  return "null";
}

namespace {

bool same_members(const ConfigNode& a, const ConfigNode& b) {
  if (a.members.size() != b.members.size()) return false;
  std::map<std::string_view, const ConfigNode*> others;
  for (const Member& member : b.members) others[member.name] = &member.value;
  return std::all_of(a.members.begin(), a.members.end(), [&](const Member& member) {
    const auto other = others.find(member.name);
    return other != others.end() && same_value(member.value, *other->second);
  });
}

}  // namespace

bool same_value(const ConfigNode& a, const ConfigNode& b) {
  const auto is_number = [](const ConfigNode& node) {
    return node.kind == NodeKind::integer || node.kind == NodeKind::number;
  };
  if (is_number(a) && is_number(b)) return a.number == b.number;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case NodeKind::boolean:
      return a.boolean == b.boolean;
    case NodeKind::text:
      return a.text == b.text;
    case NodeKind::list:
      return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same_value);
    case NodeKind::map:
      return same_members(a, b);
    default:
      return true;
  }
}

}  // namespace fullshard::config
