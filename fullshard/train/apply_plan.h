// A Plan (a configuration that was read and checked) turned into what the engine and the optimizers
// take:
//   const auto plan = Plan::load("ds_config.json");
//   auto sharded = shard(model, world, plan);
//   auto optimizer = make_optimizer(sharded, plan);
//   LrScheduler scheduler(make_schedule(plan, total_steps), *optimizer);
//   Stepper stepper(sharded, *optimizer, stepper_options_of(plan), &scheduler);
#pragma once

#include <cstdint>
#include <memory>

#include "fullshard/config/plan.h"
#include "fullshard/optim/lr_schedule.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/optim/precision.h"
#include "fullshard/optim/stepper.h"
#include "fullshard/shard/sharded_model.h"

namespace fullshard {

Precision precision_of(const Plan& plan);
ShardOptions shard_options_of(const Plan& plan);
StepperOptions stepper_options_of(const Plan& plan);

// Collective. Of the plan's type and settings; a type that is not ours is an error that says how to
// bring one's own.
std::unique_ptr<Optimizer> make_optimizer(const ShardedModel& model, const Plan& plan);

// `total_steps` serves schedules whose total the plan leaves open.
std::unique_ptr<LrSchedule> make_schedule(const Plan& plan, int64_t total_steps);

// Collective. Checks the plan against this world, then shards `model` in place.
template <class Model>
ShardedModel shard(const Model& model, const World& world, const Plan& plan) {
  plan.check(world.size());
  return shard(model, world, shard_options_of(plan));
}

}  // namespace fullshard
