// SPDX-License-Identifier: Apache-2.0
// How an update of states in host memory is divided between the device, which they pass through,
// and the host's own cores.
#pragma once

#include <string>

#include "fullshard/tiers/bus_speed.h"

namespace fullshard::tiers {

// Bytes of one element, for AdamW with masters in halves.
struct StepBytes {
  double over_bus_each_way = 10;  // moments and the lower half, there and back
  double in_host_memory = 26;     // what the host's update reads and writes
};

struct StepShare {
  double host = 0;                    // of all elements; 0 or 1: one of them does everything
  double device_ns = 0, host_ns = 0;  // for one element, each alone

  std::string text() const;  // both figures, and what follows
};

// Both end at the same time. A share below a tenth is not worth its gradients' way, and is 0; one
// above nine tenths is 1. `host_memory` in bytes per second.
StepShare step_share(const BusSpeed& bus, double host_memory, const StepBytes& bytes = {});

}  // namespace fullshard::tiers
