// SPDX-License-Identifier: Apache-2.0
// `estimate --sharding-factors`: one run with its states sharded over 2, 4, … of the ranks, and
// what each choice holds, sends and takes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fullshard/simulation/simulate.h"

namespace fullshard::simulation {

struct ShardedSimulation {
  int factor = 1;  // ranks that one copy is sharded over; ranks / factor copies
  Simulation run{};
};

// Factors from the smallest on. `simulated` simulates one of them.
std::vector<ShardedSimulation> simulate_factors(
    int ranks, const std::function<Simulation(int factor)>& simulated);

// A line for each, then what the numbers are based on. `memory_bytes`: of one device.
std::string sharding_factors_text(const std::vector<ShardedSimulation>& rows,
                                  const Cluster& cluster, int64_t memory_bytes);
// [{"factor", "copies", "rest_bytes", "peak_bytes", "fits", "sent_bytes",
//   "sent_between_hosts_bytes", "step_s", "tokens_per_s_per_gpu", "exposed_communication_s"}]
std::string sharding_factors_json(const std::vector<ShardedSimulation>& rows, int64_t memory_bytes);

}  // namespace fullshard::simulation
