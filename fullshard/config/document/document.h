// SPDX-License-Identifier: Apache-2.0
// A configuration file as it was written: values with their line numbers, before anything is known
// about their meaning. JSON and YAML give the same tree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::config {

enum class NodeKind { null, boolean, integer, number, text, list, map };

struct Member;

struct ConfigNode {
  NodeKind kind = NodeKind::null;
  int line = 0;        // 1 is the first; 0: not from a file
  std::string text{};  // a scalar as it was written, without quotes
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;  // also of integers
  std::vector<ConfigNode> items{};
  // In the order of the file; names are unique. No {}: clang would need Member to be complete.
  std::vector<Member> members;

  // The member of that name, or null.
  const ConfigNode* find(std::string_view name) const;

  static ConfigNode of_boolean(bool value);
  static ConfigNode of_integer(int64_t value);
  static ConfigNode of_number(double value);
  static ConfigNode of_text(std::string value);
  // A scalar without quotes: null, a boolean, a number or else text. YAML's words (yes, off, ...)
  // are booleans only when `words`.
  static ConfigNode of_plain(std::string_view text, bool words);
};

struct Member {
  std::string name;
  int line = 0;
  ConfigNode value{};
};

// "a number", "a list", for messages.
std::string_view name_of(NodeKind kind);

// The value as JSON on one line.
std::string to_json(const ConfigNode& node);
std::string quote_json(std::string_view text);
// A number as text: "0.001", "5e-05", "500000000".
std::string format_number(double value);

// Whether both are equal: numbers by value, maps in any order.
bool same_value(const ConfigNode& a, const ConfigNode& b);

}  // namespace fullshard::config
