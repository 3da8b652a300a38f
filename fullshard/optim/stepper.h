// SPDX-License-Identifier: Apache-2.0
// One optimizer step as a training loop wants it: the loss is scaled, gradients are checked,
// clipped and applied, the schedule moves on; a step that overflowed is left out on all ranks
// alike.
//
//   Stepper stepper(sharded, optimizer, {.max_grad_norm = 1.0});
//   stepper.backward(loss);            // once per micro-batch
//   const StepReport report = stepper.step();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/loss_scaler.h"
#include "fullshard/optim/lr_scheduler.h"
#include "fullshard/optim/optimizer.h"

namespace fullshard {

// What to do when the loss is not finite, or gradients overflow although the loss scale is at its
// minimum, or ten times in a row without one that changes. Either way the step is left out and the
// reason is said.
enum class OnBreakdown { stop, go_on };

struct StepperOptions {
  double max_grad_norm = 0;  // 0: no clipping; the norm is reported all the same
  ShardedModel::Norm norm = ShardedModel::Norm::two;
  // Backwards per step: losses are divided by it, and a step after fewer, or one more backward, is
  // an error.
  int accumulation_steps = 1;
  // Micro-batches are added on each rank and reduced once, with the last of them, instead of each
  // as it comes: less traffic, whole gradients in memory between them. docs/training.md,
  // "Accumulation".
  bool reduces_once = false;
  std::optional<LossScaleOptions> loss_scale = {};  // for fp16
  OnBreakdown on_breakdown = OnBreakdown::stop;
  bool reports_norm = true;  // false: step() is step_without_norm(), and its norm NaN on CPUs too
};

struct StepReport {
  int64_t step = 0;      // counted from 0, skipped ones included
  double lr = 0;         // that the step used, or would have used
  double grad_norm = 0;  // before clipping; not finite when the step was skipped
  double loss_scale = 1;
  bool skipped = false;
  std::string reason{};  // of a skip
};

class Stepper {
 public:
  // `optimizer`, and `scheduler` if there is one, outlive it.
  Stepper(ShardedModel model, Optimizer& optimizer, const StepperOptions& options = {},
          LrScheduler* scheduler = nullptr);
  // A foreign optimizer: `update` makes its step, `lr` tells its rate.
  Stepper(ShardedModel model, std::function<void()> update, std::function<double()> lr,
          const StepperOptions& options = {}, LrScheduler* scheduler = nullptr);

  // Runs the backward of a micro-batch's loss (a scalar).
  void backward(const at::Tensor& loss);
  // What backward() multiplies losses by.
  double loss_factor() const;
  // In the place of backward(), where the device has repeated that of an earlier micro-batch.
  void note_repeated_backward(const at::Tensor& loss) { losses_.push_back(loss.detach()); }
  // Collective. Throws an Error with a diagnosis on a breakdown, unless told to go on. `riders`
  // (engine/gradients/norm_riders.h) go with the message of the norm where it can take them.
  StepReport step(engine::NormRiders* riders = nullptr);
  // The same for a step whose norm nobody wants to see: on a GPU the host does not wait for the
  // device. The report's norm is NaN then, and a step whose gradients are not finite is left out
  // silently there. With loss scaling, a foreign optimizer or on the CPU it is step().
  StepReport step_without_norm();

  const LossScaler& scaler() const { return scaler_; }
  LossScaler& scaler() { return scaler_; }
  int64_t num_steps() const { return num_steps_; }      // tried
  int64_t num_skipped() const { return num_skipped_; }  // of them
  void restore(int64_t num_steps, int64_t num_skipped);

 private:
  void check_options() const;
  void check_micro_batches() const;
  void check_has_room();     // for one more
  bool steps_ahead() const;  // of the host's knowledge of the norm: on a GPU, with our optimizers
  bool waits_for_norm() const;  // also where nobody wants to see it
  StepReport new_report();
  StepReport step_with_norm(engine::NormRiders* riders = nullptr);
  // Makes the step, or finds that it must be skipped. One wait for a GPU, after everything is
  // launched.
  void update_when_finite(StepReport& report, engine::NormRiders* riders);
  void finish_step();
  void handle_non_finite(StepReport& report);
  std::string first_place() const;
  // The rank and value of the first loss that is not finite.
  std::optional<std::pair<int, double>> bad_loss() const;

  ShardedModel model_;
  Optimizer* optimizer_ = nullptr;  // none: a foreign one
  std::function<void()> update_;
  std::function<double()> lr_;
  StepperOptions options_;
  LrScheduler* scheduler_;
  LossScaler scaler_;
  std::vector<at::Tensor> losses_;  // of this step's micro-batches
  int64_t num_steps_ = 0;
  int64_t num_skipped_ = 0;
  int skipped_in_a_row_ = 0;
  bool has_updated_ = false;  // by a step of this stepper
};

}  // namespace fullshard
