// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/lora/module_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <set>

#include "fullshard/base/closest.h"
#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"

namespace fullshard::models {
namespace {

constexpr size_t kLongestPattern = 1000;  // bytes; std::regex recurses over what it matches
constexpr size_t kMostNamesShown = 20;

// Patterns come from files: where libstdc++ offers a search that takes no exponential time, and
// refuses back references, it is taken.
#ifdef __GLIBCXX__
constexpr auto kSyntax = std::regex_constants::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kSyntax = std::regex_constants::ECMAScript;
#endif

}  // namespace

bool is_named(std::string_view path, std::string_view name) {
  if (path == name) return !name.empty();
  return !name.empty() && path.size() > name.size() && path.ends_with(name) &&
         path[path.size() - name.size() - 1] == '.';
}

struct PathPattern::Compiled {
  std::regex whole, end;
};

PathPattern::PathPattern(const std::string& pattern, const std::string& what) {
  const auto shown = base::printable(pattern, 100);
  if (pattern.empty() || pattern.size() > kLongestPattern) {
    fail_as(ErrorKind::usage, "{}: '{}' has {} bytes, expected a pattern of 1 to {}", what, shown,
            pattern.size(), kLongestPattern);
  }
  try {
    compiled_ = std::make_unique<Compiled>(
        Compiled{std::regex(pattern, kSyntax), std::regex("(.*\\.)?(" + pattern + ")", kSyntax)});
  } catch (const std::regex_error& error) {
    fail_as(ErrorKind::usage, "{}: '{}' is not a regular expression: {}", what, shown,
            error.what());
  }
}

PathPattern::~PathPattern() = default;
PathPattern::PathPattern(PathPattern&&) noexcept = default;

bool PathPattern::matches(const std::string& path) const {
  return std::regex_match(path, compiled_->whole);
}

bool PathPattern::matches_end(const std::string& path) const {
  return std::regex_match(path, compiled_->end);
}

std::string near_names(std::string_view name, const std::vector<std::string>& paths) {
  std::set<std::string> ends;
  for (const std::string& path : paths) ends.insert(path.substr(path.rfind('.') + 1));
  const std::vector<std::string> candidates(ends.begin(), ends.end());
  std::vector<std::string> shown;
  if (const auto near = base::closest(name, candidates)) shown.push_back(*near);
  for (const std::string& candidate : candidates) {
    if (shown.size() < kMostNamesShown && (shown.empty() || candidate != shown.front())) {
      shown.push_back(candidate);
    }
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

}  // namespace fullshard::models
