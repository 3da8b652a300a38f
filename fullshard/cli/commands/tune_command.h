// SPDX-License-Identifier: Apache-2.0
// `tune` and `train --auto`, as the program without libtorch sees them.
#pragma once

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::cli {

// What an FSDP file says of units, which the file that tune writes has no key for.
std::optional<FlagValue> wrap_flag(const WrapPlanSettings& wrap);

// Of commands that start runs of their own, `bench step` among them. What is wrong with the words
// is said at once: an Error of kind usage.
void check_ranks_of_trials(RunArguments& arguments);

// Tunes into OUTPUT/tune, or goes on with what is there; then this process becomes `train` with the
// winner's file in place of what it chose. Ends the process with tune's exit status where that is
// none of success.
[[noreturn]] void train_tuned(RunArguments& arguments);

}  // namespace fullshard::cli
