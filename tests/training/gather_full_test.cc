// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/sgd.h"
#include "tests/errors.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

template <class Body>
void for_every_sharding(int ranks, const Body& body) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool share : {true, false}) {
      SCOPED_TRACE(fmt::format("stage {}, share {}", stage, share));
      run_ranks({.ranks = ranks}, [&](const World& world) {
        ShardOptions options;
        options.sharding.zero_stage = stage;
        options.share_host_copy = share;
        auto model = make_model({});
        auto sharded = shard(model, world, options);
        body(model, sharded, world);
      });
    }
  }
}

TEST(GatherFull, ShowsTheWholeParametersUnderTheirOwnNames) {
  const auto expected = make_model({})->named_parameters();
  for_every_sharding(3, [&](TinyTransformer& model, ShardedModel& sharded, const World&) {
    auto full = sharded.gather_full();
    const auto actual = model->named_parameters();
    ASSERT_EQ(actual.keys(), expected.keys());
    for (const auto& item : expected) {
      EXPECT_TRUE(at::equal(actual[item.key()], item.value())) << item.key();
    }
    full.close();
    EXPECT_EQ(sharded.counters().live_numel, 0);
  });
}

// Rank 1 works in its scope for longer than ranks wait for each other in a step.
TEST(GatherFullSlow, WaitsAtItsEndForAsLongAsARankNeeds) {
  for (const std::string backend : {"shm", "gloo"}) {
    for (const bool write_back : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, write back {}", backend, write_back));
      const Timeouts timeouts{.step = std::chrono::seconds(2)};
      run_ranks({.ranks = 3, .backend = backend, .timeouts = timeouts}, [&](const World& world) {
        auto model = make_model({});
        auto sharded = shard(model, world);
        auto full = sharded.gather_full({.write_back = write_back});
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
        full.close();
        world.communicator().barrier();
      });
    }
  }
}

TEST(GatherFull, EndsTheWaitWhenARankFailsInsideItsScope) {
  for (const std::string backend : {"shm", "gloo"}) {
    const auto error = message_of([&] {
      run_ranks({.ranks = 2, .backend = backend}, [&](const World& world) {
        auto model = make_model({});
        auto sharded = shard(model, world);
        auto full = sharded.gather_full();
        if (world.rank() == 0) fail("the disk is full");
        const auto told = message_of([&] { full.close(); });
        EXPECT_THAT(told, HasSubstr("barrier of gather_full")) << backend;
        EXPECT_THAT(told, HasSubstr("waits for rank 0, which failed: the disk is full")) << backend;
      });
    });
    EXPECT_THAT(error, HasSubstr("the disk is full"));
  }
}

TEST(GatherFull, GathersOnlyTheUnitsAskedFor) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto model = make_model({});
    auto sharded = shard(model, world);
    auto full = sharded.gather_full({.units = {"block1"}});
    EXPECT_NO_THROW(model->blocks[1]->up->weight.sum());
    EXPECT_THROW(model->blocks[0]->up->weight.sum(), c10::Error);
  });
}

TEST(GatherFull, WritingInBf16LeavesTheBitsOfUntouchedMasters) {
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      ShardOptions options;
      options.sharding.zero_stage = stage;
      options.param_dtype = at::kBFloat16;
      auto model = make_model({});
      auto sharded = shard(model, world, options);
      std::vector<at::Tensor> before;
      for (const auto& piece : sharded.pieces()) before.push_back(piece.master.clone());
      auto full = sharded.gather_full({.write_back = true});
      {
        at::NoGradGuard no_grad;
        model->blocks[1]->up->weight.fill_(3);
      }
      full.close();
      const auto after = sharded.pieces();
      ASSERT_EQ(after.size(), before.size());
      for (size_t i = 0; i < after.size(); ++i) {
        const bool was_written = after[i].name == "block1.up.weight";
        const auto expected = was_written ? at::full_like(before[i], 3) : before[i];
        EXPECT_TRUE(at::equal(after[i].master, expected)) << after[i].name << ", stage " << stage;
      }
    });
  }
}

TEST(GatherFull, AnUnknownUnitListsThoseThatExist) {
  auto model = make_model({});
  auto sharded = shard(model, World::single());
  try {
    auto full = sharded.gather_full({.units = {"block9"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no unit at one of block9; the units are '', 'block0'"));
  }
}

TEST(GatherFull, WritesRank0sValuesBack) {
  for_every_sharding(3, [](TinyTransformer& model, ShardedModel& sharded, const World& world) {
    {
      auto full = sharded.gather_full({.write_back = true});
      at::NoGradGuard no_grad;
      model->blocks[1]->up->weight.fill_(static_cast<double>(world.rank() + 5));
      full.close();
    }
    auto full = sharded.gather_full();
    EXPECT_TRUE(at::equal(model->blocks[1]->up->weight, at::ones({24, 6}) * 5));
    const auto untouched = make_model({});
    EXPECT_TRUE(at::equal(model->blocks[0]->up->weight, untouched->blocks[0]->up->weight));
  });
}

TEST(GatherFull, WrittenValuesAreTrainedOn) {
  for_every_sharding(2, [](TinyTransformer& model, ShardedModel& sharded, const World& world) {
    Sgd optimizer(sharded, {.lr = 0.0});
    {
      auto full = sharded.gather_full({.write_back = true});
      at::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) parameter.mul_(0.5);
      full.close();
    }
    auto plain = make_model({});
    {
      at::NoGradGuard no_grad;
      for (auto& parameter : plain->parameters()) parameter.mul_(0.5);
    }
    const auto batch = make_batch({}, 0, 0, world.rank());
    auto loss = model(batch);
    EXPECT_EQ(loss.item<float>(), plain(batch).item<float>());
    loss.backward();
    optimizer.step();
    EXPECT_EQ(model(batch).item<float>(), plain(batch).item<float>());
  });
}

TEST(GatherFull, WritingWithoutAskingIsAnError) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto model = make_model({});
    ShardOptions options;
    options.share_host_copy = false;
    auto sharded = shard(model, world, options);
    auto full = sharded.gather_full();
    {
      at::NoGradGuard no_grad;
      model->blocks[0]->up->weight.fill_(1);
    }
    try {
      full.close();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("block0.up.weight"));
      EXPECT_THAT(error.what(), HasSubstr("{.write_back = true}"));
    }
  });
}

TEST(SyncModuleStates, TakesRank0sParametersAndBuffers) {
  struct WithBufferImpl : Unit {
    WithBufferImpl() {
      weight = register_parameter("weight", at::ones({5}));
      buffer = register_buffer("buffer", at::ones({3}));
    }
    at::Tensor forward(at::Tensor x) { return x * weight; }
    at::Tensor weight, buffer;
  };
  for (const int stage : {0, 2, 3}) {
    for (const bool share : {true, false}) {
      run_ranks({.ranks = 3}, [&](const World& world) {
        UnitHolder<WithBufferImpl> model;
        {
          at::NoGradGuard no_grad;
          model->weight.fill_(world.rank() + 1.0);
          model->buffer.fill_(world.rank() + 10.0);
        }
        ShardOptions options;
        options.sharding.zero_stage = stage;
        options.share_host_copy = share;
        options.sync_module_states = true;
        auto sharded = shard(model, world, options);
        auto full = sharded.gather_full();
        EXPECT_TRUE(at::equal(model->weight, at::ones({5})));
        EXPECT_TRUE(at::equal(model->buffer, at::ones({3}) * 10));
      });
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
