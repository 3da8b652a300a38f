// SPDX-License-Identifier: Apache-2.0
// Where bytes may lie, and what they are for.
#pragma once

#include <string_view>

namespace fullshard::tiers {

enum class Purpose { parameters, gradients, master, optimizer, activations, workspace };
inline constexpr int kNumPurposes = 6;

// A place for bytes, from near to far. On a CPU device the first two are the same memory.
enum class Tier { device, host, disk };
inline constexpr int kNumTiers = 3;

std::string_view name_of(Purpose purpose);
std::string_view name_of(Tier tier);

}  // namespace fullshard::tiers
