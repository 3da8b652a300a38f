// Going on from a checkpoint, whoever saved it.
#pragma once

#include <string>

#include "fullshard/checkpoint/progress.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/optim/loss_scaler.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/shard/sharded_model.h"

namespace fullshard {

// Collective. `path` is a checkpoint of ours, a folder of several, or a run's; or one of DeepSpeed,
// torch.distributed.checkpoint, Accelerate or the Trainer, of which rank 0 says what starts anew.
// `scaler` is the run's, for what is said of the loss scale; it stays as it is. `takes_fp32` false:
// masters begin at the values that are computed with (load_from_fp32_weights).
Progress load_training_state(const std::string& path, const LanguageModel& model,
                             ShardedModel& sharded, Optimizer& optimizer, const LossScaler& scaler,
                             bool takes_fp32 = true);

}  // namespace fullshard
