// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/unit_runtime.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "tests/engine/assembled_model.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Gathers when asked, and writes down what it was told.
class RecordedEvents : public engine::UnitEvents {
 public:
  void before_forward(engine::UnitRuntime& unit) override { gather("before_forward", unit); }
  void after_forward(engine::UnitRuntime& unit, bool has_backward) override {
    told.push_back("after_forward " + unit.path() + (has_backward ? "+" : "-"));
    unit.reshard();
  }
  void enter_recompute(nn::RecomputePass, uint64_t) override { told.push_back("enter_recompute"); }
  void leave_recompute() noexcept override { told.push_back("leave_recompute"); }
  void backward_runs() override { told.push_back("backward_runs"); }
  void before_backward(engine::UnitRuntime& unit) override { gather("before_backward", unit); }
  void gradient_arrived() override { told.push_back("gradient_arrived"); }
  void gradients_ready(engine::UnitRuntime& unit) override {
    told.push_back("gradients_ready " + unit.path());
  }

  std::vector<std::string> told;

 private:
  void gather(const std::string& event, engine::UnitRuntime& unit) {
    told.push_back(event + " " + unit.path());
    unit.unshard();
  }
};

TEST(UnitRuntime, ReportsAForwardAndABackward) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks({.ranks = ranks}, [](const World& world) {
      AssembledModel assembled(world);
      RecordedEvents events;
      assembled.assemble(&events);
      const auto loss = assembled.model(at::ones({5})).sum();
      EXPECT_THAT(events.told,
                  ElementsAre("before_forward ", "before_forward a", "after_forward a+",
                              "before_forward b", "after_forward b+", "after_forward +"));
      events.told.clear();
      loss.backward();
      EXPECT_THAT(
          events.told,
          ElementsAre("backward_runs", "before_backward ", "backward_runs", "gradient_arrived",
                      "gradients_ready ", "backward_runs", "before_backward b", "backward_runs",
                      "gradient_arrived", "gradients_ready b", "backward_runs", "before_backward a",
                      "backward_runs", "gradient_arrived", "gradients_ready a"));
      for (const auto& unit : assembled.units) EXPECT_TRUE(unit->has_unreduced()) << unit->path();
      for (const auto& unit : assembled.units) unit->abandon_pass();
    });
  }
}

TEST(UnitRuntime, SaysWhenNoBackwardWillCome) {
  run_ranks({.ranks = 2}, [](const World& world) {
    AssembledModel assembled(world);
    RecordedEvents events;
    assembled.assemble(&events);
    at::NoGradGuard no_grad;
    (void)assembled.model->a(at::ones({5}));
    EXPECT_THAT(events.told, ElementsAre("before_forward a", "after_forward a-"));
  });
}

TEST(UnitRuntime, LeavesHooksThatDoNothingOnceItsLifeIsGone) {
  run_ranks({.ranks = 1}, [](const World& world) {
    AssembledModel assembled(world);
    RecordedEvents events;
    assembled.assemble(&events);
    auto x = at::ones({5}).requires_grad_();
    assembled.model->a->weight.requires_grad_(false);
    const auto loss = assembled.model->a(x).sum();
    assembled.life.reset();
    events.told.clear();
    loss.backward();
    EXPECT_THAT(events.told, IsEmpty());
  });
}

TEST(UnitRuntime, CountsWhatIsMadeFullAndFetchedAhead) {
  run_ranks({.ranks = 2}, [](const World& world) {
    AssembledModel assembled(world);
    RecordedEvents events;
    assembled.assemble(&events);
    auto& unit = *assembled.units[1];
    const auto& counters = assembled.counters;
    EXPECT_EQ(unit.numel(), 8);  // five elements, padded to four for each rank
    unit.begin_unshard();
    EXPECT_TRUE(unit.is_arriving());
    EXPECT_EQ(counters.ahead_numel, 8);
    unit.unshard();
    EXPECT_TRUE(unit.is_live());
    EXPECT_TRUE(at::equal(assembled.model->a->weight, at::arange(1, 6, at::kFloat)));
    EXPECT_EQ(counters.ahead_numel, 0);
    EXPECT_EQ(counters.live_numel, 8);
    EXPECT_EQ(counters.unshards, 1);
    EXPECT_EQ(counters.prefetches, 1);
    unit.reshard();
    EXPECT_EQ(counters.live_numel, 0);
    EXPECT_FALSE(unit.is_live());
  });
}

}  // namespace
}  // namespace fullshard::testing
