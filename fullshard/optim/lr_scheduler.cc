// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/lr_scheduler.h"

#include <fmt/format.h>

#include <utility>

#include "fullshard/base/error.h"

namespace fullshard {

LrScheduler::LrScheduler(std::unique_ptr<LrSchedule> schedule, std::unique_ptr<RateTarget> target)
    : schedule_(std::move(schedule)), target_(std::move(target)) {
  check(schedule_ != nullptr && target_ != nullptr,
        "LrScheduler: the {} is null, expected one; make it with a make_... function",
        schedule_ == nullptr ? "schedule" : "target");
  for (int group = 0; group < target_->num_groups(); ++group) {
    base_lrs_.push_back(target_->base_lr(group));
  }
  check(!base_lrs_.empty(), "LrScheduler: the optimizer has no parameter group, expected one");
  apply();
}

LrScheduler::LrScheduler(std::unique_ptr<LrSchedule> schedule, Optimizer& optimizer)
    : LrScheduler(std::move(schedule), make_rate_target(optimizer)) {}

LrScheduler::LrScheduler(std::unique_ptr<LrSchedule> schedule, torch::optim::Optimizer& optimizer)
    : LrScheduler(std::move(schedule), make_rate_target(optimizer)) {}

void LrScheduler::step() {
  ++num_steps_;
  apply();
}

Rates LrScheduler::rates(int group) const {
  const auto num_groups = static_cast<int>(base_lrs_.size());
  check(group >= 0 && group < num_groups, "LrScheduler: group is {}, expected 0 to {}", group,
        num_groups - 1);
  auto rates = schedule_->at(num_steps_, base_lrs_[group]);
  if (!target_->takes_momentum()) rates.momentum = rates.beta2 = std::nullopt;
  return rates;
}

void LrScheduler::restore(int64_t num_steps, const std::vector<double>& base_lrs) {
  check(num_steps >= 0, "LrScheduler: the saved number of steps is {}, expected 0 or more",
        num_steps);
  num_steps_ = num_steps;
  if (!target_->keeps_base_lr() && base_lrs.size() == base_lrs_.size()) base_lrs_ = base_lrs;
  apply();
}

std::vector<std::string> LrScheduler::warnings() const {
  auto warnings = schedule_->warnings();
  if (schedule_->at(0, base_lrs_[0]).momentum && !target_->takes_momentum()) {
    warnings.push_back(
        fmt::format("{}: the momentum is not cycled: the optimizer has no betas; use Adam or "
                    "AdamW, or set cycle_momentum to false",
                    schedule_->name()));
  }
  return warnings;
}

void LrScheduler::apply() {
  for (size_t group = 0; group < base_lrs_.size(); ++group) {
    target_->set_lr(static_cast<int>(group), schedule_->at(num_steps_, base_lrs_[group]).lr);
  }
  const auto present = rates();
  if (present.momentum) target_->set_momentum(*present.momentum, present.beta2);
}

}  // namespace fullshard
