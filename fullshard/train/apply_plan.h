// SPDX-License-Identifier: Apache-2.0
// A Plan (a configuration that was read and checked) turned into what the engine and the optimizers
// take:
//   const auto plan = Plan::load("ds_config.json");
//   auto sharded = shard(model, world, plan);
//   auto optimizer = make_optimizer(sharded, plan);
//   LrScheduler scheduler(make_schedule(plan, total_steps), *optimizer);
//   Stepper stepper(sharded, *optimizer, stepper_options_of(plan, world.size()), &scheduler);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "fullshard/config/plan.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/optim/precision.h"
#include "fullshard/optim/schedules/lr_schedule.h"
#include "fullshard/optim/stepper.h"
#include "fullshard/train/run_settings.h"

namespace fullshard {

Precision precision_of(const Plan& plan);
// An "auto" that is not resolved is an error; all of them are listed (Plan::check_resolved).
ShardOptions shard_options_of(const Plan& plan);
// `num_ranks` serves plans whose accumulation follows from the batch sizes and the ranks; without
// it they are an error.
StepperOptions stepper_options_of(const Plan& plan, std::optional<int64_t> num_ranks = {});

// Collective. Of the plan's type and settings; a type that is not ours is an error that says how to
// bring one's own.
std::unique_ptr<Optimizer> make_optimizer(const ShardedModel& model, const Plan& plan);

// `total_steps` serves schedules whose total the plan leaves open.
std::unique_ptr<LrSchedule> make_schedule(const Plan& plan, int64_t total_steps);

// Collective. Checks the plan against this world, then shards `model` in place.
ShardedModel shard(const ShardableModule& model, const World& world, const Plan& plan);

}  // namespace fullshard
