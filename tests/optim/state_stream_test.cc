// SPDX-License-Identifier: Apache-2.0
// States that rest in host memory and pass through windows. On the CPU the lanes do their work as
// late as the marks allow, so whoever does not wait for an update finds old values.
#include "fullshard/optim/state_stream.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "fullshard/engine/engine_access.h"
#include "fullshard/optim/adagrad.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/lion.h"
#include "fullshard/optim/one_bit_adam.h"
#include "fullshard/optim/sgd.h"
#include "fullshard/optim/stepper.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/offload_options.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSmallestWindow = 16 * 8;  // of two fp32 states

tiers::TierOptions streamed(int64_t window_bytes = kSmallestWindow, int num_windows = 2) {
  return states_in_host_memory(window_bytes, num_windows);
}

template <class Kind, class Options>
MakeOptimizer streamed_kind(Options options, at::ScalarType states) {
  options.state_dtype = states;
  options.rules = {{.pattern = "bias", .weight_decay = 0.0, .lr_scale = 0.5}};
  return [options](ShardedModel& model) { return std::make_unique<Kind>(model, options); };
}

std::map<std::string, MakeOptimizer> streamed_kinds(at::ScalarType states = at::kFloat) {
  return {
      {"AdamW", streamed_kind<AdamW>(AdamWOptions{.lr = 1e-2, .weight_decay = 0.1}, states)},
      {"Adam", streamed_kind<AdamW>(AdamWOptions{.lr = 1e-2, .adam_w_mode = false}, states)},
      {"SGD",
       streamed_kind<Sgd>(
           SgdOptions{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}, states)},
      {"plain SGD", streamed_kind<Sgd>(SgdOptions{.lr = 1e-2}, states)},
      {"Adagrad", streamed_kind<Adagrad>(
                      AdagradOptions{.lr = 1e-2, .initial_accumulator_value = 0.1}, states)},
      {"Lion", streamed_kind<Lion>(LionOptions{.lr = 1e-3, .weight_decay = 0.1}, states)}};
}

void expect_same_outcome(const FixedOutcome& actual, const FixedOutcome& expected,
                         const std::string& what) {
  expect_same_bits(actual.masters, expected.masters, what);
  ASSERT_EQ(actual.states.size(), expected.states.size()) << what;
  for (size_t i = 0; i < expected.states.size(); ++i) {
    expect_same_bits(actual.states[i], expected.states[i], what + ", state");
  }
  EXPECT_EQ(actual.norms, expected.norms) << what;
}

TEST(StreamedStates, GiveTheBitsOfResidentOnesWithEveryOptimizer) {
  for (const auto states : {at::kFloat, at::kBFloat16}) {
    for (const auto& [name, make] : streamed_kinds(states)) {
      for (const int ranks : {1, 2, 3}) {
        for (const int stage : {1, 2, 3}) {
          FixedRun run{.ranks = ranks};
          run.shard.sharding.zero_stage = stage;
          run.shard.param_dtype = at::kBFloat16;
          const auto what = fmt::format("{}, {} states, {} ranks, stage {}", name,
                                        c10::toString(states), ranks, stage);
          const auto expected = train_fixed(run, make);
          run.shard.offload = streamed(16 * 12);  // masters, which are whole, pass as well
          expect_same_outcome(train_fixed(run, make), expected, what);
        }
      }
    }
  }
}

TEST(Residences, GiveTheSameBitsWithEveryOptimizer) {
  const TemporaryFolder folder;
  auto kinds = streamed_kinds();
  kinds["LAMB"] = streamed_kind<Lamb>(LambOptions{.lr = 1e-2}, at::kFloat);
  for (const auto& [kind, make] : kinds) {
    for (const int ranks : {1, 3}) {
      for (const auto compute : {at::kFloat, at::kBFloat16}) {
        FixedRun run{.ranks = ranks};
        run.shard.param_dtype = compute;
        const auto expected = train_fixed(run, make);
        for (const auto& [name, offload] : residences(folder.path())) {
          if (kind == "LAMB" && offload.uses_disk() && offload.streams_on_cpu) continue;  // refused
          const auto what =
              fmt::format("{}, {}, {} ranks, {}", kind, name, ranks, c10::toString(compute));
          run.shard.offload = offload;
          expect_same_outcome(train_fixed(run, make), expected, what);
        }
      }
    }
  }
}

TEST(StreamedStates, GiveTheSameBitsWhateverTheWindowsAndTheShare) {
  const auto make = streamed_kinds().at("AdamW");
  for (const int ranks : {1, 2, 7}) {  // of seven ranks some own nothing of some units
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      FixedRun run{.ranks = ranks, .dtype = dtype};
      const auto expected = train_fixed(run, make);
      for (const int num_windows : {1, 2, 5}) {
        for (const double share : {0.0, 0.5, 1.0}) {
          run.shard.offload = streamed(2 * kSmallestWindow, num_windows);
          run.shard.offload.ratio = 1 - share;
          run.shard.sub_group_size = num_windows == 5 ? 16 : 0;
          expect_same_outcome(
              train_fixed(run, make), expected,
              fmt::format("{} ranks, {} windows, share {}", ranks, num_windows, share));
        }
      }
    }
  }
}

TEST(StreamedStates, AreSharedByRanksThatLookAtOneCopyAndByThoseThatDoNot) {
  const auto make = streamed_kinds().at("AdamW");
  for (const bool one_copy : {true, false}) {
    FixedRun run{.ranks = 3};
    run.shard.share_host_copy = one_copy;
    const auto expected = train_fixed(run, make);
    run.shard.offload = streamed();
    expect_same_outcome(train_fixed(run, make), expected, one_copy ? "one copy" : "gathered");
  }
}

// One rank, whose steps a test makes itself.
struct StreamedRun {
  explicit StreamedRun(const tiers::TierOptions& offload, at::ScalarType compute = at::kFloat)
      : sharded(shard(model, World::single(), {.param_dtype = compute, .offload = offload})),
        optimizer(sharded, {.lr = 1e-2}) {}

  void backward(int step) {
    const auto compute = sharded.options().param_dtype.value_or(at::kFloat);
    model(fixed_gradients(step, 0).to(compute)).backward();
  }
  void train(int first, int last) {
    for (int step = first; step < last; ++step) {
      backward(step);
      sharded.clip_grad_norm(0.5);
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  Values masters() {
    Values values;
    for (const auto& piece : sharded.pieces()) values[piece.name] = piece.master.clone();
    return values;
  }
  engine::Engine& engine() { return engine::EngineAccess::of(sharded); }
  int64_t held(tiers::Purpose purpose, tiers::Tier tier = tiers::Tier::device) const {
    return sharded.ledger().held(purpose, tier);
  }

  Fixed model = make_fixed();
  ShardedModel sharded;
  AdamW optimizer;
};

int64_t shard_numel(const ShardedModel& sharded) {
  int64_t numel = 0;
  for (int group = 0; group < sharded.num_groups(); ++group) numel += sharded.shard_numel(group);
  return numel;
}

TEST(StreamedStates, AreCountedToTheByteOnEachTier) {
  StreamedRun run(streamed());
  const int64_t numel = shard_numel(run.sharded);
  EXPECT_EQ(run.held(tiers::Purpose::optimizer, tiers::Tier::host), 8 * numel);
  EXPECT_EQ(run.held(tiers::Purpose::optimizer), 2 * kSmallestWindow);
  run.train(0, 1);
  for (int step = 1; step < 4; ++step) {
    run.sharded.settle();
    const auto before = run.sharded.counters();
    run.train(step, step + 1);
    run.sharded.settle();  // the last chunks are issued when somebody waits for them
    EXPECT_EQ(run.sharded.counters().states_copied_in - before.states_copied_in, 8 * numel);
    EXPECT_EQ(run.sharded.counters().states_copied_out - before.states_copied_out, 8 * numel);
  }
  EXPECT_EQ(run.sharded.counters().largest_update, 16);
}

TEST(StreamedStates, ThatDoNotExistAreNotCopied) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single(), {.offload = streamed()});
  Sgd optimizer(sharded, {.lr = 1e-2});
  model(fixed_gradients(0, 0)).backward();
  optimizer.step();
  EXPECT_EQ(sharded.counters().states_copied_in, 0);
  EXPECT_EQ(sharded.ledger().held(tiers::Purpose::optimizer), 0);
}

TEST(StreamedStates, OfTheResidentShareStayOnTheDevice) {
  auto offload = streamed();
  offload.ratio = 0.5;  // the root's weight, half of all
  StreamedRun run(offload);
  EXPECT_EQ(run.held(tiers::Purpose::optimizer, tiers::Tier::host),
            8 * (shard_numel(run.sharded) - run.sharded.shard_numel(0)));
  EXPECT_EQ(run.held(tiers::Purpose::optimizer),
            8 * run.sharded.shard_numel(0) + 2 * kSmallestWindow);
  run.train(0, 1);
  run.sharded.settle();
  EXPECT_EQ(run.sharded.counters().states_copied_in,
            run.held(tiers::Purpose::optimizer, tiers::Tier::host));
}

TEST(StreamedStates, OfABudgetStayOnTheDevice) {
  auto offload = streamed();
  StreamedRun all(offload);
  offload.resident_bytes = 8 * all.sharded.shard_numel(0);  // the root, to the byte
  StreamedRun run(offload);
  EXPECT_EQ(run.held(tiers::Purpose::optimizer, tiers::Tier::host),
            8 * (shard_numel(run.sharded) - run.sharded.shard_numel(0)));
  offload.resident_bytes = 8 * all.sharded.shard_numel(0) - 1;
  EXPECT_EQ(StreamedRun(offload).held(tiers::Purpose::optimizer, tiers::Tier::host),
            8 * shard_numel(run.sharded));
}

TEST(StreamedStates, TakeNoMemoryAfterTheSecondStep) {
  StreamedRun run(streamed());
  run.train(0, 2);
  const auto device = run.sharded.num_allocations();
  const auto host = run.engine().tiers().host()->num_allocations();
  run.train(2, 6);
  EXPECT_EQ(run.sharded.num_allocations(), device);
  EXPECT_EQ(run.engine().tiers().host()->num_allocations(), host);
}

// Its forward calls the units in another order than the module tree has them.
struct BackToFrontImpl : Unit {
  BackToFrontImpl() {
    part = register_module("part", FixedPart());
    tail = register_module("tail", FixedPart());
  }
  at::Tensor forward(at::Tensor x) {
    const auto last = tail(x.narrow(0, 66, 22));
    return last + part(x.narrow(0, 44, 22));
  }
  FixedPart part{nullptr}, tail{nullptr};
};
FULLSHARD_UNIT(BackToFront);

TEST(StreamedStates, ComeInTheOrderInWhichForwardsNeedThem) {
  BackToFront model;
  auto sharded = shard(model, World::single(), {.offload = streamed()});
  const auto& engine = engine::EngineAccess::of(sharded);
  EXPECT_THAT(engine.groups_in_forward_order(), ElementsAre(0, 1));
  model(fixed_gradients(0, 0)).backward();
  EXPECT_THAT(engine.groups_in_forward_order(), ElementsAre(1, 0));
}

TEST(StreamedUpdates, HappenWhenTheirUnitIsUsedNext) {
  StreamedRun run(streamed());
  const auto before = run.masters();
  run.train(0, 1);
  const auto groups = run.engine().trainable_groups();
  for (const auto* group : groups) EXPECT_TRUE(group->is_updating());
  // What nobody waited for is as it was.
  const auto* values = groups[1]->master_to_update(groups[1]->pieces()[0]).data_ptr<float>();
  EXPECT_EQ(values[0], before.at("part.norm_weight").data_ptr<float>()[0]);
  (void)run.model->part(fixed_gradients(1, 0).narrow(0, 44, 22));
  EXPECT_FALSE(groups[1]->is_updating());
  EXPECT_NE(values[0], before.at("part.norm_weight").data_ptr<float>()[0]);
  EXPECT_TRUE(groups[2]->is_updating());
}

TEST(StreamedUpdates, AreWaitedForByWhoeverReadsAParameterOrIsTold) {
  StreamedRun streaming(streamed()), resident({});
  for (auto* run : {&streaming, &resident}) run->train(0, 1);
  try {
    (void)streaming.model->weight.sum();
    ADD_FAILURE() << "no error";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("used while the optimizer's update of it is under way"));
    EXPECT_THAT(error.what(), HasSubstr("sharded.settle()"));
  }
  {
    const auto full = streaming.sharded.gather_full();
    EXPECT_TRUE(at::equal(streaming.model->weight, resident.model->weight));
  }
  for (auto* run : {&streaming, &resident}) run->train(1, 2);
  streaming.sharded.settle();
  EXPECT_TRUE(at::equal(streaming.model->weight, resident.model->weight));
  for (auto* run : {&streaming, &resident}) run->train(2, 3);
  EXPECT_TRUE(at::equal(streaming.optimizer.state(0, 1), resident.optimizer.state(0, 1)));
}

TEST(StreamedUpdates, KeepTheGradientsThatTheyRead) {
  StreamedRun run(streamed());
  run.backward(0);
  const auto gradients = run.held(tiers::Purpose::gradients);
  EXPECT_GT(gradients, 0);
  run.optimizer.step();
  run.optimizer.zero_grad();
  EXPECT_EQ(run.held(tiers::Purpose::gradients), gradients);
  run.sharded.settle();
  EXPECT_EQ(run.held(tiers::Purpose::gradients), 0);
}

// Whoever takes memory after zero_grad() writes all over it.
TEST(StreamedUpdates, GiveTheMemoryOfGradientsToNobodyBeforeTheyAreDone) {
  for (const int ranks : {1, 2}) {
    const auto train = [&](const tiers::TierOptions& offload, bool contiguous) {
      std::map<std::string, at::Tensor> masters;
      std::mutex mutex;
      run_ranks({.ranks = ranks}, [&](const World& world) {
        auto model = make_fixed();
        const ShardOptions options{
            .offload = offload, .share_host_copy = false, .contiguous_gradients = contiguous};
        auto sharded = shard(model, world, options);
        AdamW optimizer(sharded, {.lr = 1e-2});
        for (int step = 0; step < 4; ++step) {
          model(fixed_gradients(step, world.rank())).backward();
          optimizer.step();
          optimizer.zero_grad();
          std::vector<memory::Block> taken;
          for (const int64_t bytes : {16, 48, 64, 88, 96, 176, 192}) {
            taken.push_back(
                engine::EngineAccess::of(sharded).pool()->take(bytes, tiers::Purpose::workspace));
            taken.back().as(bytes / 4, at::kFloat).fill_(std::nan(""));
          }
        }
        const std::lock_guard lock(mutex);
        for (const auto& piece : sharded.pieces()) {
          masters[piece.name + std::to_string(piece.begin)] = piece.master.clone();
        }
      });
      return masters;
    };
    for (const bool contiguous : {true, false}) {
      expect_same_bits(train(streamed(), contiguous), train({}, contiguous), "scribbled");
    }
  }
}

TEST(StreamedUpdates, LetGradientsBeAddedToWithoutAZeroGrad) {
  for (const int ranks : {1, 2}) {
    const auto train = [&](const tiers::TierOptions& offload) {
      Values masters;
      std::mutex mutex;
      run_ranks({.ranks = ranks}, [&](const World& world) {
        auto model = make_fixed();
        auto sharded = shard(model, world, {.offload = offload, .share_host_copy = false});
        AdamW optimizer(sharded, {.lr = 1e-2});
        for (int step = 0; step < 4; ++step) {
          model(fixed_gradients(step, world.rank())).backward();
          optimizer.step();
        }
        const std::lock_guard lock(mutex);
        for (const auto& piece : sharded.pieces()) {
          masters[piece.name + std::to_string(piece.begin)] = piece.master.clone();
        }
      });
      return masters;
    };
    expect_same_bits(train(streamed()), train({}), fmt::format("{} ranks", ranks));
  }
}

TEST(StreamedUpdates, AreMadeWithTheSettingsOfTheirStep) {
  const auto train = [](const tiers::TierOptions& offload) {
    StreamedRun run(offload);
    for (int step = 0; step < 4; ++step) {
      run.backward(step);
      run.sharded.clip_grad_norm(step % 2 == 0 ? 0.1 : 1e6);  // sets in and stops
      run.optimizer.step();
      run.optimizer.zero_grad();
      run.optimizer.set_lr(1e-2 / (step + 2));
      run.optimizer.set_beta2(0.9 + step * 0.01);
    }
    return run.masters();
  };
  expect_same_bits(train(streamed()), train({}), "changed settings");
}

TEST(StreamedUpdates, LeaveAParameterAloneThatHasNoGradient) {
  const auto train = [](const tiers::TierOptions& offload) {
    StreamedRun run(offload);
    run.train(0, 1);
    for (const bool more : {false, true}) {
      run.model->part(fixed_gradients(1, 0).narrow(0, 44, 22)).backward();
      run.optimizer.clip_without_waiting(0.5);
      if (more) run.backward(1);  // gradients that the fetch did not know of
      run.optimizer.step();
      run.optimizer.zero_grad();
    }
    run.train(2, 3);
    return run.masters();
  };
  expect_same_bits(train(streamed()), train({}), "one unit");
}

TEST(StreamedUpdates, TakeNothingThatWasFetchedBeforeTheStatesWereReplaced) {
  const auto train = [](const tiers::TierOptions& offload) {
    StreamedRun run(offload);
    run.train(0, 2);
    run.backward(2);
    run.optimizer.clip_without_waiting(0.5);
    run.optimizer.state(0, 0).mul_(0.5);
    run.optimizer.step();
    run.optimizer.zero_grad();
    {
      auto full = run.sharded.gather_full({.write_back = true});
      at::NoGradGuard no_grad;
      run.model->weight.mul_(2);
      full.close();
    }
    run.train(3, 5);
    return run.masters();
  };
  expect_same_bits(train(streamed()), train({}), "replaced");
}

TEST(StreamedUpdates, AreSkippedWithStepsThatOverflow) {
  const auto train = [](const tiers::TierOptions& offload) {
    StreamedRun run(offload, at::kHalf);  // whose masters pass as well
    Stepper stepper(run.sharded, run.optimizer,
                    {.max_grad_norm = 1.0,
                     .loss_scale = LossScaleOptions{
                         .initial_scale_power = 17, .loss_scale_window = 2, .hysteresis = 1}});
    int skipped = 0;
    for (int step = 0; step < 6; ++step) {
      stepper.backward(run.model(fixed_gradients(step, 0).to(at::kHalf)));
      skipped += stepper.step().skipped;
    }
    EXPECT_GT(skipped, 0);
    EXPECT_LT(skipped, 6);
    return run.masters();
  };
  expect_same_bits(train(streamed(16 * 12)), train({}), "fp16");
}

// They update them where they rest.
TEST(StreamedStates, OfOptimizersThatLookAtThemTwiceGiveTheSameBits) {
  const auto make = [](ShardedModel& model) {
    return std::make_unique<Lamb>(model, LambOptions{.lr = 1e-2});
  };
  for (const int ranks : {1, 2, 3}) {
    FixedRun run{.ranks = ranks};
    const auto expected = train_fixed(run, make);
    run.shard.offload = streamed();
    expect_same_outcome(train_fixed(run, make), expected, fmt::format("{} ranks", ranks));
  }
}

TEST(StreamedStates, NeedWindowsOfSixteenElements) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single(), {.offload = streamed(kSmallestWindow - 1)});
  EXPECT_THAT(message_of([&] { AdamW optimizer(sharded, {}); }),
              HasSubstr("offload.window_bytes is 127, expected at least 128"));
}

TEST(StreamedStates, OfACpuDeviceAreInHostMemoryAnyway) {
  auto model = make_fixed();
  auto sharded =
      shard(model, World::single(), {.offload = {.optimizer = {.tier = tiers::Tier::host}}});
  AdamW optimizer(sharded, {});
  EXPECT_THAT(sharded.warnings(),
              ::testing::Contains(HasSubstr("host memory holds everything already")));
  EXPECT_EQ(sharded.ledger().held(tiers::Purpose::optimizer, tiers::Tier::host), 0);
  EXPECT_EQ(sharded.ledger().held(tiers::Purpose::optimizer), 8 * shard_numel(sharded));
}

}  // namespace
}  // namespace fullshard::testing
