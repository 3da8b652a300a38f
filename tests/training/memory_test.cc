// SPDX-License-Identifier: Apache-2.0
// Bytes held, bytes on the wire and calls made, by counters: docs/memory_layout.md has the table.
#include <gtest/gtest.h>

#include "fullshard/engine/engine_access.h"
#include "fullshard/optim/adamw.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

struct Sizes {
  int64_t all = 0;    // elements of all groups with padding
  int64_t root = 0;   // of the root unit
  int64_t block = 0;  // of one block, the largest unit
};

Sizes sizes_of(const ShardedModel& sharded) {
  Sizes sizes;
  for (const auto& unit : engine::EngineAccess::of(sharded).units()) {
    int64_t numel = 0;
    for (const auto& group : unit->groups()) numel += group->layout().numel();
    sizes.all += numel;
    (unit->index() == 0 ? sizes.root : sizes.block) = numel;
  }
  return sizes;
}

struct MemorySetting {
  int ranks;
  int stage;
  bool share = false;
};

ShardOptions memory_options(const MemorySetting& setting) {
  ShardOptions options;
  options.sharding.zero_stage = setting.stage;
  options.share_host_copy = setting.share;
  options.schedule.backward_prefetch = BackwardPrefetch::none;
  return options;
}

template <class Body>
void run_measured(const MemorySetting& setting, const ShardOptions& options, const Body& body) {
  run_ranks({.ranks = setting.ranks}, [&](const World& world) {
    const TrainingOptions training;
    auto model = make_model(training);
    auto sharded = shard(model, world, options);
    AdamW optimizer(sharded, {});
    body(model, sharded, optimizer, world);
  });
}

void train_step(TinyTransformer& model, AdamW& optimizer, const World& world, int step = 0) {
  model(make_batch({}, step, 0, world.rank())).backward();
  optimizer.step();
  optimizer.zero_grad();
}

// Bytes per rank between backward and step, fp32: (p+g+k)Ψ and its cuts, with padding.
int64_t expected_bytes(const MemorySetting& setting, int64_t numel) {
  const int64_t whole = 4 * numel;
  const int64_t part = whole / setting.ranks;
  switch (setting.stage) {
    case 0:
      return 4 * whole;
    case 1:
      return 2 * whole + 2 * part;
    case 2:
      return whole + 3 * part;
    default:
      return 4 * part;
  }
}

TEST(Memory, IsTheFormulaBetweenBackwardAndStepAndWithoutGradientsAfterZeroGrad) {
  for (const int ranks : {2, 3, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool share : {false, true}) {
        const MemorySetting setting{ranks, stage, share};
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, share {}", ranks, stage, share));
        run_measured(setting, memory_options(setting),
                     [&](TinyTransformer& model, ShardedModel& sharded, AdamW& optimizer,
                         const World& world) {
                       const auto sizes = sizes_of(sharded);
                       model(make_batch({}, 0, 0, world.rank())).backward();
                       EXPECT_EQ(sharded.ledger().held_total(), expected_bytes(setting, sizes.all));
                       const int64_t gradients = stage < 2 ? 4 * sizes.all : 4 * sizes.all / ranks;
                       EXPECT_EQ(sharded.ledger().held(tiers::Purpose::gradients), gradients);
                       EXPECT_EQ(sharded.ledger().held(tiers::Purpose::optimizer),
                                 8 * sizes.all / (stage == 0 ? 1 : ranks));
                       optimizer.step();
                       optimizer.zero_grad();
                       EXPECT_EQ(sharded.ledger().held(tiers::Purpose::gradients), 0);
                       EXPECT_EQ(sharded.ledger().held_total(),
                                 expected_bytes(setting, sizes.all) - gradients);
                     });
      }
    }
  }
}

TEST(Memory, Bf16ComputationKeepsAMasterAndGathersInBf16) {
  for (const bool share : {false, true}) {
    const MemorySetting setting{2, 3, share};
    auto options = memory_options(setting);
    options.param_dtype = at::kBFloat16;
    run_measured(setting, options,
                 [&](TinyTransformer& model, ShardedModel& sharded, AdamW&, const World& world) {
                   const auto sizes = sizes_of(sharded);
                   EXPECT_EQ(model->parameters()[0].scalar_type(), at::kBFloat16);
                   model(make_batch({}, 0, 0, world.rank())).backward();
                   EXPECT_EQ(sharded.ledger().held(tiers::Purpose::master), 4 * sizes.all / 2);
                   EXPECT_EQ(sharded.ledger().held(tiers::Purpose::parameters),
                             share ? 2 * sizes.all / 2 : 0);
                   EXPECT_EQ(sharded.ledger().held(tiers::Purpose::gradients), 4 * sizes.all / 2);
                   EXPECT_EQ(sharded.ledger().held(tiers::Purpose::optimizer), 8 * sizes.all / 2);
                   const auto gathers = sharded.recorder().totals(Operation::all_gather);
                   EXPECT_EQ(gathers.calls, share ? 4 : 11);  // shard() compares with four
                 });
  }
}

TEST(Memory, PeaksOneUnitAboveTheRestAndTwoWithPrefetch) {
  const MemorySetting setting{2, 3};
  for (const bool prefetch : {false, true}) {
    auto options = memory_options(setting);
    if (prefetch) options.schedule.backward_prefetch = BackwardPrefetch::pre;
    options.schedule.forward_prefetch = prefetch;
    run_measured(
        setting, options,
        [&](TinyTransformer& model, ShardedModel& sharded, AdamW& optimizer, const World& world) {
          train_step(model, optimizer, world);
          train_step(model, optimizer, world);
          const auto sizes = sizes_of(sharded);
          sharded.ledger().reset_peaks();
          train_step(model, optimizer, world);
          // The root encloses the blocks: it is live while each of them is.
          const int64_t units = prefetch ? 2 : 1;
          EXPECT_EQ(sharded.ledger().peak(tiers::Purpose::parameters),
                    4 * (sizes.root + units * sizes.block));
          EXPECT_EQ(sharded.counters().peak_live_numel, sizes.root + units * sizes.block);
        });
  }
}

// A block's gradients go when they are reduced: of twelve blocks only a few hold theirs at a time,
// beside the root's, which collects to the end.
TEST(Memory, PeakOfGradientsDoesNotGrowWithTheNumberOfUnits) {
  for (const int ranks : {2, 3}) {
    for (const int stage : {2, 3}) {
      for (const bool contiguous : {true, false}) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, contiguous {}", ranks, stage, contiguous));
        run_ranks({.ranks = ranks}, [&](const World& world) {
          TrainingOptions training;
          training.model.layers = 12;
          auto model = make_model(training);
          auto options = memory_options({ranks, stage});
          options.contiguous_gradients = contiguous;
          auto sharded = shard(model, world, options);
          const auto sizes = sizes_of(sharded);
          for (int repeat = 0; repeat < 2; ++repeat) {
            sharded.ledger().reset_peaks();
            model(make_batch(training, 0, 0, world.rank())).backward();
            constexpr int64_t kBlocksAtOnce = 4;
            EXPECT_LE(sharded.ledger().peak(tiers::Purpose::gradients),
                      4 * (sizes.root + kBlocksAtOnce * sizes.block + sizes.all / ranks));
            EXPECT_EQ(sharded.ledger().held(tiers::Purpose::gradients), 4 * sizes.all / ranks);
            sharded.zero_grad();
          }
        });
      }
    }
  }
}

TEST(Memory, ASharedCopyTakesNoMoreThanTheShards) {
  const MemorySetting setting{2, 3, /*share=*/true};
  run_measured(
      setting, memory_options(setting),
      [&](TinyTransformer& model, ShardedModel& sharded, AdamW& optimizer, const World& world) {
        ASSERT_TRUE(sharded.shares_host_copy());
        for (int i = 0; i < 3; ++i) train_step(model, optimizer, world);
        const auto sizes = sizes_of(sharded);
        EXPECT_EQ(sharded.ledger().peak(tiers::Purpose::parameters), 0);
        EXPECT_EQ(sharded.ledger().held(tiers::Purpose::master), 4 * sizes.all / 2);
        EXPECT_EQ(sharded.recorder().totals(Operation::all_gather).calls, 4);  // shard() compares
        EXPECT_EQ(sharded.recorder().totals(Operation::share).moved, 0);
        EXPECT_GT(sharded.recorder().totals(Operation::share).calls, 0);
      });
}

TEST(Memory, AllocatesNothingAfterTheSecondStep) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool share : {false, true}) {
      const MemorySetting setting{2, stage, share};
      auto options = memory_options(setting);
      options.schedule.backward_prefetch = BackwardPrefetch::pre;
      run_measured(
          setting, options,
          [&](TinyTransformer& model, ShardedModel& sharded, AdamW& optimizer, const World& world) {
            train_step(model, optimizer, world, 0);
            train_step(model, optimizer, world, 1);
            const auto before = sharded.num_allocations();
            for (int step = 2; step < 6; ++step) train_step(model, optimizer, world, step);
            EXPECT_EQ(sharded.num_allocations(), before) << "stage " << stage;
          });
    }
  }
}

// Volumes in units of (N-1)/N · Ψ: 2 for stages 0 to 2, 3 for stage 3, 2 when kept for backward.
TEST(Volume, IsTwoUnitsAndThreeForStageThree) {
  struct Case {
    int stage;
    bool keep;
    int units;
  };
  for (const auto& c : {Case{0, false, 2}, Case{1, false, 2}, Case{2, false, 2}, Case{3, false, 3},
                        Case{3, true, 2}}) {
    for (const int ranks : {2, 4}) {
      const MemorySetting setting{ranks, c.stage};
      auto options = memory_options(setting);
      options.sharding.reshard_after_forward = !c.keep;
      run_measured(
          setting, options,
          [&](TinyTransformer& model, ShardedModel& sharded, AdamW& optimizer, const World& world) {
            train_step(model, optimizer, world);
            const auto sizes = sizes_of(sharded);
            sharded.recorder().reset_totals();
            train_step(model, optimizer, world);
            const int64_t unit = 4 * sizes.all * (ranks - 1) / ranks;
            // The root stays gathered from its forward to its backward.
            const int64_t saved =
                c.stage == 3 && !c.keep ? 4 * sizes.root * (ranks - 1) / ranks : 0;
            EXPECT_EQ(sharded.recorder().moved(), c.units * unit - saved)
                << "stage " << c.stage << " keep " << c.keep;
          });
    }
  }
}

TEST(Calls, AreExactlyWhatTheScheduleSays) {
  const MemorySetting setting{2, 3};
  run_measured(
      setting, memory_options(setting),
      [&](TinyTransformer& model, ShardedModel& sharded, AdamW& optimizer, const World& world) {
        train_step(model, optimizer, world);
        sharded.recorder().reset_totals();
        train_step(model, optimizer, world);
        // Forward: root and three blocks; backward: three blocks.
        EXPECT_EQ(sharded.recorder().totals(Operation::all_gather).calls, 7);
        EXPECT_EQ(sharded.recorder().totals(Operation::reduce_scatter).calls, 4);
        EXPECT_EQ(sharded.recorder().totals(Operation::all_reduce).calls, 0);
        EXPECT_EQ(sharded.recorder().totals(Operation::broadcast).calls, 0);
        EXPECT_EQ(sharded.recorder().in_flight(), 0);
      });
}

TEST(Calls, EveryGradientIsCopiedAtMostOnce) {
  const MemorySetting setting{2, 3};
  run_measured(
      setting, memory_options(setting),
      [&](TinyTransformer& model, ShardedModel& sharded, AdamW& optimizer, const World& world) {
        const auto num_parameters = static_cast<int64_t>(model->parameters().size());
        train_step(model, optimizer, world);
        // The weights of `up` and `down` in three blocks and the head's part of the embedding are
        // written by their operator into the slot; the embedding's other part is added there.
        EXPECT_EQ(sharded.counters().gradient_copies, num_parameters - 7);
      });
}

TEST(Calls, AWorldOf1024RanksIsPlannedWithoutOne) {
  const World world = World::fake(1024, 3);
  auto model = make_model({});
  ShardOptions options;
  auto sharded = shard(model, world, options);
  const auto sizes = sizes_of(sharded);
  EXPECT_EQ(sizes.all % (1024 * 4), 0);
  EXPECT_EQ(sharded.ledger().held_total(), 4 * sizes.all / 1024);
  model(make_batch({}, 0, 0, 0)).backward();
  EXPECT_EQ(sharded.recorder().totals(Operation::reduce_scatter).calls, 4);
  EXPECT_EQ(sharded.recorder().totals(Operation::all_gather).calls, 7);
}

}  // namespace
}  // namespace fullshard::testing
