// SPDX-License-Identifier: Apache-2.0
// A step leaves nothing behind: what is allocated after a thousand of them was before.
#include <gtest/gtest.h>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"
#include "tests/live_heap.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

constexpr int kWarmUp = 100;
constexpr int kMeasured = 1000;
constexpr int64_t kNoise = 32 * 1024;  // 16 bytes a step and rank

TEST(LiveMemory, DoesNotGrowWithSteps) {
  for (const int stage : {0, 3}) {
    SCOPED_TRACE(fmt::format("stage {}", stage));
    run_ranks({.ranks = 2}, [&](const World& world) {
      TrainingOptions training;
      training.model.layers = 1;
      auto model = make_model(training);
      ShardOptions options;
      options.sharding.zero_stage = stage;
      auto sharded = shard(model, world, options);
      AdamW optimizer(sharded, {});
      Stepper stepper(sharded, optimizer, {.max_grad_norm = 1.0});
      const auto run_steps = [&](int count) {
        for (int step = 0; step < count; ++step) {
          stepper.backward(model(make_batch(training, step % 7, 0, world.rank())));
          stepper.step();
        }
        world.communicator().barrier();
      };
      run_steps(kWarmUp);
      const int64_t before = live_heap_bytes();
      run_steps(kMeasured);
      EXPECT_LT(live_heap_bytes() - before, kNoise) << "rank " << world.rank();
      world.communicator().barrier();
    });
  }
}

}  // namespace
}  // namespace fullshard::testing
