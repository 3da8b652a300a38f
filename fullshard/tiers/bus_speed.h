// SPDX-License-Identifier: Apache-2.0
// How fast bytes go between host memory and a device.
#pragma once

#include <string>

namespace fullshard::tiers {

// Of page-locked memory, in bytes per second.
struct BusSpeed {
  std::string device{};
  double to_device = 0;
  double to_host = 0;
  double both = 0;  // the sum of both directions at once
};

}  // namespace fullshard::tiers
