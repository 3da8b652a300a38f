// SPDX-License-Identifier: Apache-2.0
// ShardOptions::ignored_modules: the modules that shard() leaves alone, with all below them.
#pragma once

#include <optional>
#include <regex>
#include <string>

namespace fullshard::engine {

class IgnoredModules {
 public:
  // A regular expression over whole module paths; empty: none.
  explicit IgnoredModules(const std::string& pattern);
  bool has(const std::string& path) const;

 private:
  std::optional<std::regex> pattern_;
};

}  // namespace fullshard::engine
