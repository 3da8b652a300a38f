// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/tier.h"

#include <array>

namespace fullshard::tiers {

std::string_view name_of(Purpose purpose) {
  constexpr std::array<std::string_view, kNumPurposes> names = {
      "parameters", "gradients", "master", "optimizer", "activations", "workspace"};
  return names[static_cast<size_t>(purpose)];
}

std::string_view name_of(Tier tier) {
  constexpr std::array<std::string_view, kNumTiers> names = {"device", "host", "disk"};
  return names[static_cast<size_t>(tier)];
}

}  // namespace fullshard::tiers
