// SPDX-License-Identifier: Apache-2.0
// `tune` and `train --auto` in the program without libtorch.
#pragma once

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::cli {

// An FSDP file's setting of units, which the file that tune writes has no key for.
std::optional<FlagValue> wrap_flag(const WrapPlanSettings& wrap);

// Checks commands that start runs of their own, including `bench step`. Wrong arguments are
// reported at once, as an Error of kind usage.
void check_ranks_of_trials(RunArguments& arguments);

// Tunes into OUTPUT/tune, or continues from results there; then this process becomes `train` with
// the winner's file in place of the flags that tune chose. If tune fails, the process ends with its
// exit status.
[[noreturn]] void train_tuned(RunArguments& arguments);

}  // namespace fullshard::cli
