// SPDX-License-Identifier: Apache-2.0
// `fullshard estimate`: one process, no ranks.
#pragma once

#include <cstdint>

#include "fullshard/cli/run_arguments.h"
#include "fullshard/models/common/language_model.h"

namespace fullshard::worker {

int run_estimate(cli::RunArguments& arguments);  // gives the exit status

// As `train` chooses it.
int64_t planned_sequence_length(const RunOptions& options, const LanguageModel& model);

}  // namespace fullshard::worker
