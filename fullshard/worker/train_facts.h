// SPDX-License-Identifier: Apache-2.0
// What must be equal on all ranks of a training run: settings, data and weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "fullshard/config/effective_settings.h"
#include "fullshard/config/plan_sections.h"
#include "fullshard/config/run_options.h"
#include "fullshard/train/run/run_data.h"

namespace fullshard::worker {

struct RunLength {
  int64_t steps = 0;
  int64_t steps_per_epoch = 0;
};

// Collective: an Error of kind usage, on all ranks, that names the first thing that differs.
// `weights` is the folder that the model begins with; empty: it begins with none.
void check_ranks_agree(const World& world, const std::vector<config::EffectiveSetting>& settings,
                       const CheckpointPlan& checkpoints, const RunOptions& options,
                       const RunLength& length, const train::RunData& data,
                       const std::string& weights);

}  // namespace fullshard::worker
