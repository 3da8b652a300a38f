// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/stepper.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <limits>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/gradients/gradient_factor.h"
#include "fullshard/engine/non_finite_master.h"
#include "fullshard/memory/host_number.h"
#include "fullshard/optim/diagnosis.h"

namespace fullshard {

Stepper::Stepper(ShardedModel model, Optimizer& optimizer, const StepperOptions& options,
                 LrScheduler* scheduler)
    : Stepper(
          std::move(model), [&optimizer] { optimizer.step(); },
          [&optimizer] { return optimizer.lr(); }, options, scheduler) {
  optimizer_ = &optimizer;
}

Stepper::Stepper(ShardedModel model, std::function<void()> update, std::function<double()> lr,
                 const StepperOptions& options, LrScheduler* scheduler)
    : model_(std::move(model)),
      update_(std::move(update)),
      lr_(std::move(lr)),
      options_(options),
      scheduler_(scheduler),
      scaler_(options.loss_scale ? LossScaler(*options.loss_scale) : LossScaler::none()) {
  check_options();
  // Overflows are everyday there, so it is worth a look at each gradient to name the culprit.
  model_.watch_parameter_gradients(options.loss_scale.has_value());
}

void Stepper::check_options() const {
  check(options_.max_grad_norm >= 0 && std::isfinite(options_.max_grad_norm),
        "max_grad_norm is {}, expected 0 (no clipping) or a positive number",
        options_.max_grad_norm);
  check(options_.accumulation_steps >= 1, "accumulation_steps is {}, expected at least 1",
        options_.accumulation_steps);
}

// None at all: the caller makes the backwards, with loss_factor().
void Stepper::check_micro_batches() const {
  const auto num_done = static_cast<int>(losses_.size());
  check(num_done == 0 || num_done >= options_.accumulation_steps,
        "step(): {} of {} micro-batches had their backward, and losses are divided by "
        "accumulation_steps {}; call backward() for each of them first",
        num_done, options_.accumulation_steps, options_.accumulation_steps);
}

void Stepper::check_has_room() {
  // What dropped the gradients dropped the micro-batches that they came from.
  if (!engine::EngineAccess::of(model_).has_gradients()) losses_.clear();
  check(std::ssize(losses_) < options_.accumulation_steps,
        "backward(): it would be that of micro-batch {}, and losses are divided by "
        "accumulation_steps {}; call step() first, or set accumulation_steps to the number of "
        "backwards",
        losses_.size() + 1, options_.accumulation_steps);
}

void Stepper::backward(const at::Tensor& loss) {
  check(loss.defined() && loss.numel() == 1,
        "backward: the loss has {} elements, expected one; reduce it to its mean first",
        loss.defined() ? loss.numel() : 0);
  check_has_room();
  std::optional<NoSync> no_sync;
  if (options_.reduces_once && std::ssize(losses_) + 1 < options_.accumulation_steps) {
    no_sync.emplace(model_.no_sync());
  }
  model_.set_loss_scale(scaler_.scale());  // of the gradients that come now
  const double factor = loss_factor();
  (factor == 1 ? loss : loss.mul(factor)).backward();
  losses_.push_back(loss.detach());  // one that failed does not count
}

double Stepper::loss_factor() const {
  return engine::loss_factor(scaler_.scale(), options_.accumulation_steps);
}

StepReport Stepper::new_report() {
  model_.set_loss_scale(scaler_.scale());
  StepReport report;
  report.step = num_steps_;
  report.lr = lr_();
  report.loss_scale = scaler_.scale();
  return report;
}

bool Stepper::steps_ahead() const {
  const auto& world = model_.mesh().world();
  // Where ranks keep their own gradients their norms meet on the host.
  return optimizer_ != nullptr && !world.device().is_cpu() &&
         (world.size() == 1 || engine::EngineAccess::of(model_).reduces_over_ranks());
}

bool Stepper::waits_for_norm() const { return !steps_ahead() || options_.loss_scale; }

void Stepper::update_when_finite(StepReport& report, engine::NormRiders* riders) {
  if (steps_ahead()) {
    // Launched before the norm is known here: the device leaves it out when that is not finite.
    const memory::HostNumber norm(
        optimizer_->clip_without_waiting(options_.max_grad_norm, options_.norm));
    update_();
    report.grad_norm = norm.wait();
    model_.mesh().world().check_sound();
    model_.recorder().settle(*norm.arrival());
    report.skipped = !std::isfinite(report.grad_norm);
    if (report.skipped) optimizer_->restore_num_steps(optimizer_->num_steps() - 1);
    return;
  }
  report.grad_norm = options_.max_grad_norm > 0
                         ? model_.clip_grad_norm(options_.max_grad_norm, options_.norm, riders)
                         : model_.grad_norm(options_.norm, riders);
  model_.mesh().world().check_sound();
  // Every rank has the same norm, so all of them take the same way.
  report.skipped = !std::isfinite(report.grad_norm);
  if (!report.skipped) update_();
}

void Stepper::finish_step() {
  model_.zero_grad();
  skipped_in_a_row_ = 0;
  has_updated_ = true;
  (void)scaler_.update(false);
  if (scheduler_ != nullptr) scheduler_->step();
}

StepReport Stepper::step(engine::NormRiders* riders) {
  check_micro_batches();
  if (options_.reports_norm) return step_with_norm(riders);
  StepReport report = waits_for_norm() ? step_with_norm(riders) : step_without_norm();
  if (!report.skipped) report.grad_norm = std::numeric_limits<double>::quiet_NaN();
  return report;
}

StepReport Stepper::step_with_norm(engine::NormRiders* riders) {
  auto report = new_report();
  update_when_finite(report, riders);
  ++num_steps_;
  if (report.skipped) {
    ++num_skipped_;
    handle_non_finite(report);
  } else {
    finish_step();
  }
  losses_.clear();
  return report;
}

StepReport Stepper::step_without_norm() {
  check_micro_batches();
  if (waits_for_norm()) return step_with_norm();
  auto report = new_report();
  report.grad_norm = std::numeric_limits<double>::quiet_NaN();
  (void)optimizer_->clip_without_waiting(options_.max_grad_norm, options_.norm);
  update_();
  ++num_steps_;
  finish_step();
  losses_.clear();
  return report;
}

std::string Stepper::first_place() const {
  if (const auto first = model_.first_non_finite()) return first->text();
  const auto parameter = model_.first_non_finite_parameter();
  if (parameter.empty()) return {};
  return fmt::format("the sum over all ranks of the gradient of parameter '{}'", parameter);
}

std::optional<std::pair<int, double>> Stepper::bad_loss() const {
  double own = 0;
  for (const auto& loss : losses_) {
    const double value = loss.item<double>();
    if (!std::isfinite(value) && std::isfinite(own)) own = value;
  }
  const auto& ranks = model_.mesh().everyone();
  auto all = at::zeros({ranks.size()}, at::kDouble);
  ranks.all_gather(all, at::full({1}, own, at::kDouble), "losses").wait();
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const double value = all.const_data_ptr<double>()[rank];
    if (!std::isfinite(value)) return std::pair(rank, value);
  }
  return std::nullopt;
}

void Stepper::handle_non_finite(StepReport& report) {
  const auto place = first_place();
  const auto loss = bad_loss();
  const bool could_lower = scaler_.update(true);
  // Without a scale that changes every such step is like the one before: one may pass, many do not.
  constexpr int kMostInARow = 10;
  ++skipped_in_a_row_;
  const bool is_stuck = !scaler_.is_dynamic() && skipped_in_a_row_ >= kMostInARow;
  losses_.clear();
  model_.skip_step();

  if (loss || !could_lower || is_stuck) {
    optim::BreakdownEvidence evidence;
    evidence.step = report.step + 1;
    if (is_stuck) evidence.skipped_in_a_row = skipped_in_a_row_;
    if (loss) std::tie(evidence.bad_loss_rank, evidence.bad_loss) = *loss;
    evidence.first_place = place;
    evidence.bad_weight = engine::first_non_finite_master(engine::EngineAccess::of(model_));
    evidence.has_updated = has_updated_;
    evidence.compute_dtype = model_.options().param_dtype.value_or(at::kFloat);
    evidence.lr = report.lr;
    evidence.is_scale_at_minimum = !could_lower;
    evidence.loss_scale = report.loss_scale;
    evidence.initial_scale_power = scaler_.options().initial_scale_power;
    report.reason = optim::diagnose(evidence);
    if (options_.on_breakdown == OnBreakdown::stop) fail("{}", report.reason);
  } else {
    const std::string what = options_.loss_scale
                                 ? fmt::format("overflowed at loss scale {}", report.loss_scale)
                                 : "are not finite";
    report.reason = fmt::format("step {}: gradients {}, first in {}", report.step + 1, what,
                                place.empty() ? "a place that is not known" : place);
  }
  if (model_.mesh().world().rank() != 0) return;
  spdlog::warn(
      "{}; the step is skipped{}", report.reason,
      scaler_.is_dynamic() ? fmt::format(", the loss scale is now {}", scaler_.scale()) : "");
}

void Stepper::restore(int64_t num_steps, int64_t num_skipped) {
  check(num_skipped >= 0 && num_steps >= num_skipped,
        "restore: {} steps of which {} were skipped, expected no fewer steps than skipped ones",
        num_steps, num_skipped);
  num_steps_ = num_steps;
  num_skipped_ = num_skipped;
}

}  // namespace fullshard
