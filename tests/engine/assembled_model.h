// SPDX-License-Identifier: Apache-2.0
// The units of a small model on one rank, put together as the engine does, for tests of its parts.
#pragma once

#include <ATen/ops/arange.h>

#include <memory>
#include <string>
#include <vector>

#include "fullshard/engine/assemble_units.h"
#include "fullshard/engine/passes/pass_controller.h"
#include "fullshard/nn/unit.h"

namespace fullshard::testing {

struct ScaleUnitImpl : Unit {
  ScaleUnitImpl() { weight = register_parameter("weight", at::arange(1, 6, at::kFloat)); }
  at::Tensor forward(at::Tensor x) { return x * weight; }
  at::Tensor weight;
};
FULLSHARD_UNIT(ScaleUnit);

// The root has a weight of its own, used after its two units.
struct ScaledTwiceImpl : Unit {
  ScaledTwiceImpl() {
    a = register_module("a", ScaleUnit());
    b = register_module("b", ScaleUnit());
    weight = register_parameter("weight", at::arange(2, 7, at::kFloat));
  }
  at::Tensor forward(at::Tensor x) { return b(a(x)) * weight; }
  ScaleUnit a{nullptr}, b{nullptr};
  at::Tensor weight;
};
FULLSHARD_UNIT(ScaledTwice);

class AssembledModel {
 public:
  explicit AssembledModel(const World& world, const ScheduleOptions& schedule = {})
      : plan_(plan_units(*model, WrapPolicy::marked(), "")),
        mesh_(world, world.size()),
        traffic_(mesh_, {}),
        pool_(std::make_shared<memory::Pool>(
            [everyone = mesh_.everyone()](int64_t bytes) {
              return everyone.allocate(bytes, at::kByte);
            },
            std::make_shared<Ledger>(), tiers::Tier::device)),
        tiers_(pool_, world.device(), world.rank(), {}),
        context_{&mesh_, &traffic_, &draining_, pool_, &tiers_, &counters},
        schedule_(schedule, {}),
        passes(units, schedule_, context_, watch_),
        unit_context_{&passes, &passes.recomputes(), &counters, &watch_} {}
  ~AssembledModel() {
    for (const auto& unit : plan_.units) unit.state->set_hooks(nullptr);
  }
  AssembledModel(const AssembledModel&) = delete;
  AssembledModel& operator=(const AssembledModel&) = delete;

  // Units that report to `events`, or to the controller.
  void assemble(engine::UnitEvents* events = nullptr) {
    if (events != nullptr) unit_context_.events = events;
    const ShardOptions options;
    const Sharding sharding{Placement::sharded, Placement::sharded, Placement::sharded};
    tiers::Residence residence;
    units = engine::assemble_units(plan_, options, sharding, context_, unit_context_, residence);
    std::vector<int64_t> sizes;
    for (const auto& unit : units) sizes.push_back(unit->numel());
    schedule_ = Schedule(schedule_.options(), sizes);
    passes.start(life);
    for (size_t i = 0; i < units.size(); ++i) {
      units[i]->start(life);
      plan_.units[i].state->set_hooks(units[i].get());
    }
  }

  ScaledTwice model;
  std::shared_ptr<int> life = std::make_shared<int>();
  ShardCounters counters;

 private:
  WrapPlan plan_;
  Mesh mesh_;
  engine::Traffic traffic_;
  engine::Draining draining_;
  engine::NonFiniteWatch watch_;
  std::shared_ptr<memory::Pool> pool_;
  engine::TierMemory tiers_;
  engine::GroupContext context_;

 public:
  engine::Units units;  // "", "a", "b"

 private:
  Schedule schedule_;

 public:
  engine::PassController passes;

 private:
  engine::UnitContext unit_context_;
};

}  // namespace fullshard::testing
