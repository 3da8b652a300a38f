// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/collective_names.h"

#include <algorithm>
#include <array>

namespace fullshard::config {

std::optional<std::string> collective_name(std::string_view name) {
  constexpr std::array<std::string_view, 6> kCollectives = {
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier", "share"};
  for (const std::string_view ending : {"_into_tensor", "_tensor", "_base", "_fn"}) {
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
  }
  const auto* const found = std::ranges::find(kCollectives, name);
  return found == kCollectives.end() ? std::nullopt : std::optional<std::string>(*found);
}

}  // namespace fullshard::config
