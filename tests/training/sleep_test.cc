// SPDX-License-Identifier: Apache-2.0
// Models that sleep: everything in host memory and back, and the same bits as without. The CPU
// plays a device of its own (streams_on_cpu), so that bytes of both tiers are counted.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/torch/torch_optimizer.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/offload_options.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

// Where in a step the model sleeps.
enum class Nap { never, before_forward, before_step, after_step, inside_accumulation };

using NapMasters = std::map<std::string, at::Tensor>;

struct Napper {
  Napper(const World& whole, const ShardOptions& options)
      : world(whole),
        model(make_model(training)),
        sharded(shard(model, whole, options)),
        optimizer(sharded, {.lr = 1e-2, .weight_decay = 0.1}) {}

  void nap() {
    const auto host = sharded.ledger().held_total(tiers::Tier::host);
    const auto asleep = sharded.sleep();
    EXPECT_EQ(sharded.ledger().held_total(), 0);
    EXPECT_EQ(sharded.ledger().held_total(tiers::Tier::host), host + asleep.host_bytes);
    const auto awake = sharded.wake();
    EXPECT_EQ(awake.device_bytes, asleep.device_bytes);
    EXPECT_EQ(awake.host_bytes, asleep.host_bytes);
    EXPECT_EQ(sharded.ledger().held_total(), asleep.device_bytes);
    EXPECT_EQ(sharded.ledger().held_total(tiers::Tier::host), host);
  }

  void train(int first, int last, Nap when = Nap::never) {
    for (int step = first; step < last; ++step) {
      if (when == Nap::before_forward) nap();
      for (int micro = 0; micro < 2; ++micro) {
        std::optional<NoSync> no_sync;
        if (when == Nap::inside_accumulation && micro == 0) no_sync.emplace(sharded.no_sync());
        model(make_batch(training, step, micro, world.rank())).backward();
        if (when == Nap::inside_accumulation && micro == 0) nap();
      }
      sharded.clip_grad_norm(0.5);
      if (when == Nap::before_step) nap();
      optimizer.step();
      if (when == Nap::after_step) nap();
      optimizer.zero_grad();
    }
  }

  NapMasters masters() const {
    NapMasters values;
    for (const auto& piece : sharded.pieces()) values[piece.name] = piece.master.clone();
    return values;
  }

  TrainingOptions training{};
  World world;
  TinyTransformer model;
  ShardedModel sharded;
  AdamW optimizer;
};

ShardOptions on_played_device(tiers::TierOptions offload = {}) {
  ShardOptions options;
  options.offload = std::move(offload);
  options.offload.streams_on_cpu = true;
  options.share_host_copy = false;
  return options;
}

void expect_masters_awake(const NapMasters& actual, const NapMasters& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    EXPECT_TRUE(at::equal(actual.at(name), values)) << name;
  }
}

// Of every way to hold parameters, masters and gradients.
std::map<std::string, ShardOptions> ways_to_sleep(const std::string& folder) {
  std::map<std::string, ShardOptions> ways;
  for (const int stage : {1, 2, 3}) {
    auto& way = ways["stage " + std::to_string(stage)] = on_played_device();
    way.sharding.zero_stage = stage;
  }
  auto& bf16 = ways["bf16"] = on_played_device();
  bf16.param_dtype = at::kBFloat16;
  auto& apart = ways["gradients where autograd left them"] = on_played_device();
  apart.contiguous_gradients = false;
  auto& narrow = ways["gradients sent in 16 bits"] = on_played_device();
  narrow.param_dtype = at::kBFloat16;
  narrow.reduce_dtype = at::kBFloat16;
  for (const auto& [name, offload] : residences(folder)) ways[name] = on_played_device(offload);
  return ways;
}

TEST(Sleep, LeavesEveryBitAsItWasWheneverItComes) {
  const TemporaryFolder folder;
  for (const int ranks : {1, 2}) {
    for (const auto& [name, options] : ways_to_sleep(folder.path())) {
      for (const Nap when :
           {Nap::before_forward, Nap::before_step, Nap::after_step, Nap::inside_accumulation}) {
        SCOPED_TRACE(name + ", " + std::to_string(ranks) + " ranks, " +
                     std::to_string(static_cast<int>(when)));
        run_ranks({.ranks = ranks}, [&](const World& world) {
          Napper waking(world, options);
          // Accumulation inside no_sync adds in another order than reducing each time.
          if (when == Nap::inside_accumulation) {
            for (int step = 0; step < 3; ++step) {
              {
                const auto no_sync = waking.sharded.no_sync();
                waking.model(make_batch(waking.training, step, 0, world.rank())).backward();
              }
              waking.model(make_batch(waking.training, step, 1, world.rank())).backward();
              waking.sharded.clip_grad_norm(0.5);
              waking.optimizer.step();
              waking.optimizer.zero_grad();
            }
          } else {
            waking.train(0, 3);
          }
          Napper sleeping(world, options);
          sleeping.train(0, 3, when);
          expect_masters_awake(sleeping.masters(), waking.masters());
        });
      }
    }
  }
}

TEST(Sleep, TakesEverythingFromTheDeviceAndTellsHowMuch) {
  for (const int ranks : {1, 2}) {
    for (const int stage : {1, 3}) {
      run_ranks({.ranks = ranks}, [&](const World& world) {
        auto options = on_played_device(states_in_host_memory(8 * 64, 3));
        options.offload.ratio = stage == 3 ? std::optional(0.5) : std::nullopt;
        options.sharding.zero_stage = stage;
        Napper run(world, options);
        run.train(0, 2);
        run.model(make_batch(run.training, 2, 0, world.rank())).backward();
        run.sharded.settle();
        const auto held = run.sharded.ledger().held_total();
        ASSERT_GT(held, 0);
        const auto report = run.sharded.sleep();
        EXPECT_EQ(run.sharded.ledger().held_total(), 0);
        EXPECT_EQ(report.device_bytes, held);
        EXPECT_GT(report.seconds, 0);
        // Windows hold nothing: they are not kept in host memory.
        EXPECT_EQ(report.host_bytes, held - 3 * 8 * 64);
        run.sharded.wake();
        run.optimizer.step();
      });
    }
  }
}

TEST(Sleep, KeepsTheHandlesOfParametersAndStatesValid) {
  auto options = on_played_device();
  options.sharding.zero_stage = 1;
  Napper run(World::single(), options);
  run.train(0, 1);
  const auto weight = run.model->embedding->weight;
  const auto state = run.optimizer.state(0, 0);
  const auto before = weight.detach().clone(), moment = state.clone();
  const auto* const at_first = weight.const_data_ptr();
  run.sharded.sleep();
  run.sharded.wake();
  EXPECT_TRUE(at::equal(weight, before));
  EXPECT_TRUE(at::equal(state, moment));
  EXPECT_EQ(weight.const_data_ptr(), run.model->embedding->weight.const_data_ptr());
  (void)at_first;
  run.train(1, 2);
  EXPECT_FALSE(at::equal(weight, before));
  EXPECT_FALSE(at::equal(state, moment));
}

TEST(Sleep, IsToldToWhoeverUsesTheModel) {
  const TemporaryFolder folder;
  auto options = on_played_device();
  options.sharding.zero_stage = 1;
  Napper run(World::single(), options);
  run.train(0, 1);
  const auto batch = make_batch(run.training, 1, 0, 0);
  run.model(batch).backward();
  run.sharded.sleep();
  const auto expect_told = [](const std::string& what, const auto& act) {
    const auto message = message_of(act);
    EXPECT_THAT(message, HasSubstr(what));
    EXPECT_THAT(message, HasSubstr("the model sleeps"));
    EXPECT_THAT(message, HasSubstr("wake()"));
  };
  expect_told("forward of", [&] { run.model(batch); });
  expect_told("step()", [&] { run.optimizer.step(); });
  expect_told("zero_grad()", [&] { run.optimizer.zero_grad(); });
  expect_told("norm", [&] { run.sharded.clip_grad_norm(1.0); });
  expect_told("gather_full", [&] { (void)run.sharded.gather_full(); });
  expect_told("reading masters or states", [&] { (void)run.sharded.pieces(); });
  expect_told("save_weights", [&] { save_weights(folder.path(), run.sharded, {}); });
  expect_told("a new optimizer", [&] { Lamb(run.sharded, {}); });
  expect_told("reading masters or states", [&] {
    save_checkpoint(folder.file("step"), run.sharded, run.optimizer, {.step = 1});
  });
  EXPECT_FALSE(file_exists(folder.file("step")));
  EXPECT_EQ(message_of([&] { run.sharded.sleep(); }),
            "sleep(): the model sleeps already; call wake() first");
  try {
    (void)run.model->embedding->weight.sum();
    ADD_FAILURE() << "no error";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("is used while the model sleeps; call sharded.wake()"));
  }
  run.sharded.wake();
  EXPECT_EQ(message_of([&] { run.sharded.wake(); }),
            "wake(): the model does not sleep; call sleep() first");
  run.optimizer.step();
}

TEST(Sleep, IsRefusedInsideAScopeAndBesideATorchOptimizer) {
  Napper run(World::single(), on_played_device());
  {
    const auto full = run.sharded.gather_full();
    EXPECT_THAT(message_of([&] { run.sharded.sleep(); }),
                HasSubstr("sleep() inside an open gather_full scope"));
  }
  EXPECT_EQ(message_of([&] { run.train(0, 1); }), "no error");
}

TEST(Sleep, OfACpuDeviceMovesNothing) {
  Napper run(World::single(), {});
  run.train(0, 1);
  const auto report = run.sharded.sleep();
  EXPECT_EQ(report.device_bytes, 0);
  EXPECT_EQ(report.host_bytes, 0);
  EXPECT_THAT(message_of([&] { run.train(1, 2); }), HasSubstr("the model sleeps"));
  run.sharded.wake();
  run.train(1, 2);
}

}  // namespace
}  // namespace fullshard::testing
