// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/ignored_modules.h"

#include "fullshard/base/error.h"

namespace fullshard::engine {

IgnoredModules::IgnoredModules(const std::string& pattern) {
  if (pattern.empty()) return;
  try {
    pattern_.emplace(pattern);
  } catch (const std::regex_error& error) {
    fail_as(ErrorKind::usage, "ignored_modules '{}': not a regular expression: {}", pattern,
            error.what());
  }
}

bool IgnoredModules::has(const std::string& path) const {
  return pattern_ && std::regex_match(path, *pattern_);
}

}  // namespace fullshard::engine
