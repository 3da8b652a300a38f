// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/pass_controller.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "tests/engine/assembled_model.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<bool> live_units(const engine::Units& units) {
  std::vector<bool> live;
  for (const auto& unit : units) live.push_back(unit->is_live());
  return live;
}

TEST(PassController, GathersAUnitForItsForwardAndKeepsTheRootForBackward) {
  run_ranks({.ranks = 2}, [](const World& world) {
    AssembledModel assembled(world);
    assembled.assemble();
    auto& passes = assembled.passes;
    auto& units = assembled.units;
    passes.before_forward(*units[0]);
    passes.before_forward(*units[1]);
    EXPECT_THAT(live_units(units), ElementsAre(true, true, false));
    passes.after_forward(*units[1], true);
    EXPECT_THAT(live_units(units), ElementsAre(true, false, false));
    passes.after_forward(*units[0], true);
    EXPECT_THAT(live_units(units), ElementsAre(true, false, false));
    passes.release_all();
    EXPECT_THAT(live_units(units), Each(false));
  });
}

TEST(PassController, FetchesTheNextUnitOfAKnownOrderAndDropsItWhenTheForwardIsOver) {
  run_ranks({.ranks = 2}, [](const World& world) {
    AssembledModel assembled(world, {.forward_prefetch = true});
    assembled.assemble();
    (void)assembled.model(at::ones({5}));  // shows the order
    assembled.passes.release_all();
    EXPECT_EQ(assembled.counters.prefetches, 0);
    at::NoGradGuard no_grad;
    auto& passes = assembled.passes;
    auto& units = assembled.units;
    passes.before_forward(*units[0]);
    EXPECT_TRUE(units[1]->is_arriving());
    EXPECT_FALSE(units[2]->is_arriving());  // one unit ahead
    passes.after_forward(*units[0], false);
    EXPECT_FALSE(units[1]->is_arriving());
    EXPECT_THAT(live_units(units), Each(false));
    EXPECT_EQ(assembled.counters.prefetches, 1);
  });
}

TEST(PassController, LeavesAModelAtRestAfterABackward) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      AssembledModel assembled(world);
      assembled.assemble();
      const auto loss = assembled.model(at::ones({5})).sum();
      loss.backward();
      EXPECT_EQ(assembled.passes.phase(), engine::Phase::resting);
      EXPECT_EQ(assembled.counters.reductions, 3);
      EXPECT_EQ(assembled.counters.live_numel, 0);
      for (const auto* group : engine::trainable_groups(assembled.units)) {
        EXPECT_TRUE(group->gradients().is_reduced());
        EXPECT_FALSE(group->gradients().has_unreduced());
      }
      EXPECT_THROW(assembled.model->weight.grad().sum(), std::exception);  // poisoned
    });
  }
}

TEST(PassController, DropsGradientsOfABackwardThatFailed) {
  run_ranks({.ranks = 2}, [](const World& world) {
    AssembledModel assembled(world);
    assembled.assemble();
    auto& passes = assembled.passes;
    const auto* group_of_root = engine::trainable_groups(assembled.units).front();
    assembled.model(at::ones({5})).sum().backward();
    EXPECT_TRUE(group_of_root->gradients().is_reduced());

    auto x = at::ones({5}).requires_grad_();
    x.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("broken"); });
    const auto loss = assembled.model(x).sum();
    EXPECT_THROW(loss.backward(), std::exception);
    EXPECT_EQ(passes.phase(), engine::Phase::backward);
    EXPECT_THAT(message_of([&] { passes.check_gradients_kept(); }),
                HasSubstr("theirs were dropped with its own"));
    EXPECT_EQ(passes.phase(), engine::Phase::resting);
    EXPECT_FALSE(group_of_root->gradients().is_reduced());
    passes.drop_gradients();
    passes.check_gradients_kept();
  });
}

TEST(PassController, RefusesAForwardWithoutValues) {
  run_ranks({.ranks = 1}, [](const World& world) {
    AssembledModel assembled(world);
    assembled.assemble();
    assembled.passes.set_has_values(false);
    EXPECT_THAT(message_of([&] { assembled.passes.before_forward(*assembled.units[1]); }),
                HasSubstr("forward of unit 'a': the model was built deferred"));
    assembled.passes.set_has_values(true);
    assembled.passes.before_forward(*assembled.units[1]);
  });
}

}  // namespace
}  // namespace fullshard::testing
