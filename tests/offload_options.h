// SPDX-License-Identifier: Apache-2.0
// Offload as tests ask for it: a CPU device that streams as an accelerator does.
#pragma once

#include <map>
#include <string>

#include "fullshard/tiers/tier_options.h"

namespace fullshard::testing {

inline tiers::TierOptions states_in_host_memory(int64_t window_bytes, int64_t num_windows) {
  return {.optimizer = {.tier = tiers::Tier::host, .buffer_count = num_windows},
          .window_bytes = window_bytes,
          .streams_on_cpu = true};
}

// Parameters, gradients and states; windows hold them all.
inline tiers::TierOptions all_in_host_memory(int64_t window_bytes, int64_t num_windows) {
  return {.optimizer = {.buffer_count = num_windows},
          .window_bytes = window_bytes,
          .everything = true,
          .streams_on_cpu = true};
}

// Windows of one chunk that a disk can give: 4,096 elements of all arrays that there may be.
inline constexpr int64_t kDiskWindow = 4096 * 32;

// Every place where something may rest, with files in `folder`; by name.
inline std::map<std::string, tiers::TierOptions> residences(const std::string& folder) {
  using tiers::OffloadPlace;
  using tiers::Tier;
  const OffloadPlace host{.tier = Tier::host, .buffer_count = 2};
  const OffloadPlace disk{.tier = Tier::disk, .folder = folder, .buffer_count = 2};
  std::map<std::string, tiers::TierOptions> all{
      {"states on the host", {.optimizer = host}},
      {"half of the states on the host", {.optimizer = host, .ratio = 0.5}},
      {"parameters on the host", {.parameters = host}},
      {"parameters and states on the host", {.parameters = host, .optimizer = host}},
      {"everything on the host", {.everything = true}},
      {"states on the host, updated there", {.optimizer = host, .stepping = tiers::Stepping::host}},
      {"states on the host, half of them updated there", {.optimizer = host, .host_share = 0.5}},
      {"parameters and states on the host, updated there",
       {.parameters = host, .optimizer = host, .stepping = tiers::Stepping::host}},
      {"everything on the host, updated there",
       {.stepping = tiers::Stepping::host, .everything = true}},
      {"everything on the host, half of it updated there", {.host_share = 0.5, .everything = true}},
      {"states on disk", {.optimizer = disk}},
      {"states on disk, nothing at once",
       {.optimizer = disk, .pipeline_read = false, .pipeline_write = false}},
      {"parameters on disk", {.parameters = disk, .max_in_cpu = 0}},
      {"parameters on disk, the first in memory, through one small buffer",
       {.parameters = {.tier = Tier::disk, .folder = folder, .buffer_count = 1},
        .buffer_size = 1,
        .max_in_cpu = 40}},
      {"parameters on disk, states on the host",
       {.parameters = disk, .max_in_cpu = 0, .optimizer = host}},
      {"parameters on the host, states on disk", {.parameters = host, .optimizer = disk}},
      {"parameters and states on disk", {.parameters = disk, .max_in_cpu = 0, .optimizer = disk}}};
  for (auto& [name, options] : all) {
    options.window_bytes = kDiskWindow;
    options.streams_on_cpu = true;
    // The same on every machine: nothing is measured.
    if (options.stepping == tiers::Stepping::automatic) options.stepping = tiers::Stepping::device;
  }
  // As a CPU device does it.
  for (const std::string name :
       {"states on disk", "parameters on disk", "parameters and states on disk"}) {
    auto plain = all.at(name);
    plain.streams_on_cpu = false;
    all[name + " of a CPU device"] = plain;
  }
  return all;
}

}  // namespace fullshard::testing
