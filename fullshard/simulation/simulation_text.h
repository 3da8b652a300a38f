// SPDX-License-Identifier: Apache-2.0
// Simulations as a table over numbers of ranks, as JSON and as a page with charts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullshard/simulation/simulate.h"

namespace fullshard::simulation {

// All of them are of `cluster`; a line for each, then what the numbers are based on.
std::string simulation_text(const std::vector<Simulation>& simulations, const Cluster& cluster,
                            const KernelTable& kernels);

// How far simulated steps were from published ones: the error to expect of every time.
std::string simulation_error_text();

// {"ranks", "step_s", "tokens_per_s", "tokens_per_s_per_gpu", "exposed_communication_s",
//  "device_peak_bytes", …}; of several a list of such objects.
std::string simulation_json(const std::vector<Simulation>& simulations, const Cluster& cluster);

// `title`: what was simulated.
std::string simulation_page(const std::vector<Simulation>& simulations, const Cluster& cluster,
                            const KernelTable& kernels, std::string_view title);

}  // namespace fullshard::simulation
