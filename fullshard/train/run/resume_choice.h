// SPDX-License-Identifier: Apache-2.0
// Which checkpoint a run goes on from. Rank 0 decides: on disks of their own, or on a network's
// file system that is slow to show what is new, ranks that look for themselves would find different
// ones.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "fullshard/stored/found_checkpoint.h"

namespace fullshard::train {

struct ResumeChoice {
  std::optional<stored::FoundCheckpoint>
      checkpoint{};                    // as this rank names it; nothing: there is none
  std::vector<std::string> skipped{};  // newer ones that are not whole, and why; on rank 0 only
};

// Collective. `wanted` is auto (the newest whole one in `directory` that all ranks have) or a path;
// what rank 0 is given counts. Names that are passed over do not count. A rank that does not have
// what rank 0 has chosen looks again for as long as `patience`. If it does not come, auto takes the
// newest that all have; else there is an Error of kind input, the same on all ranks, that names
// every such rank and its host.
ResumeChoice choose_checkpoint(const World& world, const std::string& wanted,
                               const std::string& directory,
                               const std::vector<std::string>& passed_over = {},
                               std::chrono::milliseconds patience = std::chrono::seconds(10));

// Collective, when one of ours could not be loaded. The ranks read all of it between them: what is
// wrong with its files, the same on all ranks; empty: nothing is.
std::string damage_in(const World& world, const std::string& checkpoint);

}  // namespace fullshard::train
