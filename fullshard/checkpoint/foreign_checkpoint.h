// SPDX-License-Identifier: Apache-2.0
// Going on from a checkpoint that another program saved: DeepSpeed, torch.distributed.checkpoint,
// Accelerate, the Trainer; or from weights alone.
#pragma once

#include <string>
#include <vector>

#include "fullshard/checkpoint/loop_progress.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/stored/found_checkpoint.h"

namespace fullshard {

struct ForeignCheckpoint {
  std::string kind;                  // "DeepSpeed ZeRO-2"
  Progress progress;                 // steps, place in data and schedule, dynamic loss scale
  bool has_states = false;           // the optimizer goes on with what was saved
  std::vector<std::string> notes{};  // what starts anew, and why: for people
};

// Collective. Weights as load_weights() reads them, under the names that `options` give; then the
// optimizer's states, where the checkpoint has one of each name for every parameter that is
// trained, and its step count. Numbered parameters are told by `options.order` where that fits.
// Otherwise states stay as they are and a note says so. Learning rates are the caller's; random
// numbers start anew. Errors are as those of load_weights.
ForeignCheckpoint load_foreign_checkpoint(const stored::FoundCheckpoint& found, ShardedModel& model,
                                          Optimizer& optimizer, const LoadOptions& options = {});
// Of what every rank finds in the folder.
ForeignCheckpoint load_foreign_checkpoint(const std::string& folder, ShardedModel& model,
                                          Optimizer& optimizer, const LoadOptions& options = {});

}  // namespace fullshard
