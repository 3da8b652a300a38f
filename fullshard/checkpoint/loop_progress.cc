// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/loop_progress.h"

#include "fullshard/formats/input_error.h"

namespace fullshard {

Progress progress_of(const Stepper& stepper, const LrScheduler* scheduler) {
  Progress progress;
  progress.step = stepper.num_steps();
  progress.num_skipped = stepper.num_skipped();
  if (scheduler != nullptr) {
    progress.scheduler_steps = scheduler->num_steps();
    progress.base_lrs = scheduler->base_lrs();
  }
  if (stepper.scaler().is_dynamic()) progress.loss_scale = stepper.scaler().state();
  return progress;
}

void restore_progress(const Progress& progress, Stepper& stepper, LrScheduler* scheduler) {
  if (progress.scheduler_steps.has_value() != (scheduler != nullptr)) {
    formats::fail_input(
        "progress: the checkpoint was saved {} a learning rate schedule, and this run has {}; "
        "configure it as it was",
        progress.scheduler_steps ? "with" : "without", scheduler != nullptr ? "one" : "none");
  }
  stepper.restore(progress.step, progress.num_skipped);
  if (scheduler != nullptr) {
    scheduler->restore(*progress.scheduler_steps, progress.base_lrs);
  }
  if (progress.loss_scale && stepper.scaler().is_dynamic()) {
    LossScaler::State state = *progress.loss_scale;
    if (state.hysteresis == 0) state.hysteresis = stepper.scaler().options().hysteresis;
    stepper.scaler().restore(state);
  }
}

}  // namespace fullshard
