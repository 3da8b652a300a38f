// Checkpoints as people and programs read them: tables and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fullshard/checkpoint/diff_checkpoints.h"
#include "fullshard/stored/any_checkpoint.h"

namespace fullshard {

std::string checkpoint_table(const AnyCheckpoint& checkpoint, bool lists_tensors);
nlohmann::json checkpoint_json(const AnyCheckpoint& checkpoint);

std::string diff_table(const CheckpointDiff& diff);
nlohmann::json diff_json(const CheckpointDiff& diff);

}  // namespace fullshard
