// SPDX-License-Identifier: Apache-2.0
// How far a training loop has come, in and out of a checkpoint.
#pragma once

#include "fullshard/optim/lr_scheduler.h"
#include "fullshard/optim/stepper.h"
#include "fullshard/stored/training_progress.h"

namespace fullshard {

// Of a training loop; data, best and extra are the caller's to fill in. `scheduler` may be null.
Progress progress_of(const Stepper& stepper, const LrScheduler* scheduler);
// The other way. A schedule whose place was not saved is an error; so is one that was saved and is
// not there. A fixed loss scale stays as it was configured; a hysteresis of 0 means all of it.
void restore_progress(const Progress& progress, Stepper& stepper, LrScheduler* scheduler);

}  // namespace fullshard
