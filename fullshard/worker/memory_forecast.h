// SPDX-License-Identifier: Apache-2.0
// What a training run is going to hold, planned by one rank before anything starts.
#pragma once

#include <string>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "fullshard/config/plan.h"
#include "fullshard/config/run_options.h"
#include "fullshard/report/records/run_record.h"
#include "fullshard/train/model_source.h"

namespace fullshard::worker {

struct MemoryForecast {
  std::vector<PlannedTier> tiers{};
  std::string warning{};  // why there is no plan
};

// An Error of kind no_fit, with what to change, if it is more than this host has. A run that cannot
// be planned starts anyway, with a warning.
MemoryForecast forecast_training(const RunOptions& options, const ModelSource& source,
                                 const Plan& plan, const World& world);

}  // namespace fullshard::worker
