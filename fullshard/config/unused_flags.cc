// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/unused_flags.h"

#include <fmt/format.h>

#include <string>

#include "fullshard/config/plan.h"
#include "fullshard/config/schema/schema.h"
#include "fullshard/config/schema/value_check.h"

namespace fullshard::config {
namespace {

bool offloads(const OffloadPlan& offload) {
  return *offload.everything || *offload.optimizer.device != "none" ||
         *offload.parameters.device != "none";
}

bool warms_up(const SchedulerPlan& scheduler) {
  const std::string& type = *scheduler.type;
  return type != "constant" && type != "OneCycle" && type != "LRRangeTest";
}

// Why the flag has no effect; empty where it has one.
std::string why_unused(const Plan& plan, std::string_view flag) {
  const auto with_optimizer = [&](std::string_view parameter) {
    return optimizer_takes(plan.optimizer, parameter)
               ? ""
               : fmt::format("with the optimizer {}", *plan.optimizer.type);
  };
  if (flag == "adam_beta1" || flag == "adam_beta2") return with_optimizer("betas");
  if (flag == "adam_epsilon") return with_optimizer("eps");
  if (flag == "warmup" && !warms_up(plan.scheduler)) {
    return fmt::format("with the schedule {}", *plan.scheduler.type);
  }
  if (flag == "offload_ratio" || flag == "offload_resident" || flag == "offload_step") {
    return offloads(plan.offload) ? "" : "without --offload";
  }
  return "";
}

}  // namespace

bool optimizer_takes(const OptimizerPlan& optimizer, std::string_view parameter) {
  return Schema::of(Family::deepspeed)
             .find(fmt::format("optimizer.params.{}", parameter), plain_name(*optimizer.type)) !=
         nullptr;
}

void note_unused_flags(const Plan& plan, std::span<const FlagValue> flags, Problems& problems) {
  for (const FlagValue& flag : flags) {
    const std::string why = why_unused(plan, name_of_flag(flag.flag));
    if (why.empty()) continue;
    problems.warnings.push_back({.file = flag.flag, .message = "has no effect " + why});
  }
}

}  // namespace fullshard::config
