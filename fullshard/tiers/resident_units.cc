// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/resident_units.h"

#include <algorithm>

namespace fullshard::tiers {
namespace {

// The i-th of `total` is one of `count` that are spread evenly.
bool is_among_spread(int64_t i, int64_t count, int64_t total) {
  return (i + 1) * count / total > i * count / total;
}

ResidentUnits with_fetched(std::span<const UnitBytes> units, int64_t num_fetched,
                           int64_t num_blocks) {
  ResidentUnits found;
  int64_t largest = 0, block = 0;
  for (const UnitBytes& unit : units) {
    if (!unit.is_root && is_among_spread(block++, num_fetched, num_blocks)) {
      found.fetched_bytes += unit.bytes;
      largest = std::max(largest, unit.bytes);
    } else {
      found.resident.push_back(unit.path);
      found.resident_bytes += unit.bytes;
    }
  }
  found.buffer_bytes = std::min(num_fetched, kFetchedAtOnce) * largest;
  return found;
}

}  // namespace

std::optional<ResidentUnits> resident_units(std::span<const UnitBytes> units,
                                            const ResidentLimits& limits) {
  const auto num_blocks = static_cast<int64_t>(
      std::ranges::count_if(units, [](const UnitBytes& unit) { return !unit.is_root; }));
  int64_t total = 0;
  for (const UnitBytes& unit : units) total += unit.bytes;
  const auto most = static_cast<int64_t>(limits.most_share * static_cast<double>(total));
  for (int64_t num_fetched = 0; num_fetched <= num_blocks; ++num_fetched) {
    auto found = with_fetched(units, num_fetched, std::max<int64_t>(num_blocks, 1));
    const bool keeps_little = found.resident_bytes <= most || num_fetched == num_blocks;
    if (keeps_little && found.device_bytes() <= limits.device_bytes) return found;
  }
  return std::nullopt;
}

}  // namespace fullshard::tiers
