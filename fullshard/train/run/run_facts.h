// SPDX-License-Identifier: Apache-2.0
// What is told of every run in the same way, whoever runs its loop.
#pragma once

#include <string>
#include <vector>

#include "fullshard/base/launcher_environment.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/report/progress_line.h"
#include "fullshard/report/records/run_record.h"

namespace fullshard::train {

// Versions, device, mesh, number of parameters, warnings of shard(), the time: of a run that starts
// now.
RunRecord started_record(const ShardedModel& model, const std::vector<std::string>& command);

// To the terminal that the launcher lends, else to standard error.
report::ProgressOptions run_progress(const base::LauncherEnvironment& launcher);

// Collective: bytes by purpose at the peak, of all ranks, and what one rank alone would hold. Rank
// 0 gets them, the others nothing.
MemoryPlan memory_of_all(const ShardedModel& model);

// Collective: what went to and from disks so far, of all ranks; absent where nothing rests on one.
// `seconds` were spent inside steps.
std::optional<DiskTraffic> disk_traffic_of_all(const ShardedModel& model, double seconds);

}  // namespace fullshard::train
