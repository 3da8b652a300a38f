// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/stored_weights.h"

#include <set>
#include <utility>

namespace fullshard {
namespace {

// The digits at the front of what follows the prefix, when a dot ends them.
std::optional<std::string_view> layer_number(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t end = name.find_first_not_of("0123456789");
  if (end == 0 || end == std::string_view::npos || name[end] != '.') return std::nullopt;
  return name.substr(0, end);
}

}  // namespace

StoredWeights::StoredWeights(Shapes shapes, AreEqual are_equal)
    : shapes_(std::move(shapes)), are_equal_(std::move(are_equal)) {}

bool StoredWeights::are_equal(const std::string& name, const std::string& other) const {
  const auto first = shapes_.find(name), second = shapes_.find(other);
  const bool are_alike =
      first != shapes_.end() && second != shapes_.end() && first->second == second->second;
  return are_alike && are_equal_(name, other);
}

std::optional<int64_t> StoredWeights::dimension(std::initializer_list<std::string_view> names,
                                                size_t dimension) const {
  for (const auto name : names) {
    const auto found = shapes_.find(name);
    if (found != shapes_.end() && dimension < found->second.size()) {
      return found->second[dimension];
    }
  }
  return std::nullopt;
}

std::optional<int64_t> StoredWeights::num_layers(
    std::initializer_list<std::string_view> prefixes) const {
  std::set<std::string_view> numbers;
  for (const auto prefix : prefixes) {
    for (auto at = shapes_.lower_bound(prefix); at != shapes_.end(); ++at) {
      if (!at->first.starts_with(prefix)) break;
      if (const auto number = layer_number(at->first, prefix)) numbers.insert(*number);
    }
    if (!numbers.empty()) return static_cast<int64_t>(numbers.size());
  }
  return std::nullopt;
}

}  // namespace fullshard
