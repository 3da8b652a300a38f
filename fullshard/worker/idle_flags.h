// SPDX-License-Identifier: Apache-2.0
// Flags of `train` that have no effect with the others that are given.
#pragma once

#include <string>
#include <vector>

#include "fullshard/config/run_options.h"
#include "fullshard/models/common/language_model.h"

namespace fullshard::worker {

// "--keep-best: has no effect without --eval-data or --validation-split", for each of them.
std::vector<std::string> idle_flags(const RunOptions& options, const LanguageModel& model);

}  // namespace fullshard::worker
