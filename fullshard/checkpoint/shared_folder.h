// SPDX-License-Identifier: Apache-2.0
// Whether a checkpoint that is written on one disk finds it on all hosts: found out before the
// first step, not at the first save.
#pragma once

#include <chrono>
#include <string>

#include "fullshard/engine/sharded_model.h"

namespace fullshard::checkpoint {

// Collective. Rank 0 makes the folder with a mark in it, which every host's first rank that is to
// write there looks for, for as long as `patience`, since a network's file system may be slow to
// show it. An Error of kind usage, the same on all ranks, names those that do not see it.
void check_folder_is_shared(const std::string& folder, const ShardedModel& model,
                            std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace fullshard::checkpoint
