// SPDX-License-Identifier: Apache-2.0
// Checkpoints as tables and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fullshard/checkpoint/diff_checkpoints.h"
#include "fullshard/stored/any_checkpoint.h"

namespace fullshard::worker {

std::string checkpoint_table(const stored::AnyCheckpoint& checkpoint, bool lists_tensors);
nlohmann::json checkpoint_json(const stored::AnyCheckpoint& checkpoint);

std::string diff_table(const checkpoint::CheckpointDiff& diff);
nlohmann::json diff_json(const checkpoint::CheckpointDiff& diff);

}  // namespace fullshard::worker
