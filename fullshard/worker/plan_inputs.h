// SPDX-License-Identifier: Apache-2.0
// What commands plan with, from their flags and this machine.
#pragma once

#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/planning/verdict.h"

namespace fullshard::worker {

// The limits of the flags, else of this machine; `ranks_per_host` 0: the usual number.
planning::MemoryLimits limits_of(const cli::PlanningOptions& own, at::Device device, int ranks,
                                 int ranks_per_host = 0);

// The length that `train` chooses.
int64_t planned_sequence_length(const RunOptions& options, const LanguageModel& model);

}  // namespace fullshard::worker
