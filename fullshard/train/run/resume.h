// SPDX-License-Identifier: Apache-2.0
// Going on from a checkpoint, whoever saved it.
#pragma once

#include "fullshard/checkpoint/loop_progress.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/models/lora/adapter_config.h"
#include "fullshard/optim/loss_scaler.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/stored/found_checkpoint.h"

namespace fullshard::train {

// Collective. Of a checkpoint that is not ours rank 0 says what starts anew.
// `scaler` is the run's, for what is said of the loss scale; it stays as it is. `takes_fp32` false:
// masters begin at the values that are computed with (load_from_fp32_weights).
Progress load_training_state(const stored::FoundCheckpoint& found, const LanguageModel& model,
                             ShardedModel& sharded, Optimizer& optimizer, const LossScaler& scaler,
                             bool takes_fp32 = true);

// An Error of kind usage where what the adapters of a checkpoint count, or their dropout, differs
// from this run's: they would go on as others than they were trained. Shapes are compared in
// loading.
void check_same_adapter(const Progress& progress, const AdapterConfig& own,
                        const std::string& checkpoint);

}  // namespace fullshard::train
