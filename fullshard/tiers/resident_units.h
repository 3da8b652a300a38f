// SPDX-License-Identifier: Apache-2.0
// Which units of a model that is never trained stay on the device while the others are fetched for
// every pass. Pure data and one function, beside residence.h: that says where bytes rest, this what
// is whole while a model is used.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::tiers {

struct UnitBytes {
  std::string path{};
  int64_t bytes = 0;  // of all its parameters, whole
  bool is_root = false;
};

// A fetched unit that computes, and two ahead of it.
inline constexpr int64_t kFetchedAtOnce = 3;

struct ResidentUnits {
  std::vector<std::string> resident{};  // in the order given
  int64_t resident_bytes = 0;
  int64_t fetched_bytes = 0;  // in every pass
  int64_t buffer_bytes = 0;   // that fetched units take at a time

  bool is_whole() const { return fetched_bytes == 0; }
  int64_t device_bytes() const { return resident_bytes + buffer_bytes; }
};

struct ResidentLimits {
  int64_t device_bytes = 0;
  // At most this share of the bytes stays, though more would fit.
  double most_share = 1;
};

// As many units as fit, with those that are fetched spread evenly between them, so that each has
// the computation of some others to arrive in. The root stays: its parameters are used all through
// a pass. Nothing where even all fetched ones beside it do not fit.
std::optional<ResidentUnits> resident_units(std::span<const UnitBytes> units,
                                            const ResidentLimits& limits);

}  // namespace fullshard::tiers
