// SPDX-License-Identifier: Apache-2.0
// The bus between host memory and the current device, measured.
#pragma once

#include <cstdint>
#include <optional>

#include "fullshard/tiers/bus_speed.h"

namespace fullshard::memory {

// Copies of `bytes` each way alone and both at once, the best of `rounds`; holds two pinned buffers
// and two of the device of that size meanwhile. Nothing: there is no device, or this build knows
// none.
std::optional<tiers::BusSpeed> measure_bus(int64_t bytes, int rounds);

}  // namespace fullshard::memory
