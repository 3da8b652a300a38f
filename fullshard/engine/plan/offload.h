// SPDX-License-Identifier: Apache-2.0
// What of a model's state rests outside its device, and which groups that concerns. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/memory/ledger.h"

namespace fullshard::engine {
struct GroupSpec;
}  // namespace fullshard::engine

namespace fullshard {

struct StateOffload {
  // Where optimizer states and the lower halves of masters rest. On the host they pass through
  // windows on the device, which updates them there; on a CPU device both tiers are one memory.
  tiers::Tier optimizer = tiers::Tier::device;
  // Of the trained elements, whose states stay on the device all the same: those of the units that
  // come first.
  double resident_share = 0;
  int64_t window_bytes = 80 * kMiB;
  int num_windows = 4;
  // For tests: a CPU device streams as an accelerator does, and its windows are host memory too.
  bool streams_on_cpu = false;
};

// An error that names what is out of range.
void check_offload(const StateOffload& options);

// Marks the groups whose states rest on the host (GroupSpec::states_on_host), units in the order of
// the module tree.
void choose_offloaded(const StateOffload& options,
                      std::vector<std::vector<engine::GroupSpec>>& units);

}  // namespace fullshard
