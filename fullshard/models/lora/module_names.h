// SPDX-License-Identifier: Apache-2.0
// Which modules a name or pattern means, as PEFT understands them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::models {

inline constexpr std::string_view kAllLinear = "all-linear";

// The path itself, or its end after a dot.
bool is_named(std::string_view path, std::string_view name);

// A regular expression over paths. What is none is an Error of kind usage that begins with `what`,
// and so is one that is longer than anybody needs.
class PathPattern {
 public:
  PathPattern(const std::string& pattern, const std::string& what);
  ~PathPattern();
  PathPattern(PathPattern&&) noexcept;

  bool matches(const std::string& path) const;      // the whole of it
  bool matches_end(const std::string& path) const;  // or its end after a dot

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// For messages: the last components of paths, each once, those that look like `name` first.
std::string near_names(std::string_view name, const std::vector<std::string>& paths);

}  // namespace fullshard::models
