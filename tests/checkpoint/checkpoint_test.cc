// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/checkpoint.h"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <future>
#include <string>

#include "fullshard/optim/lion.h"
#include "fullshard/stored/manifest.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/checkpoint/wide_model.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<Way> with_bf16(std::vector<Way> ways) {
  const auto plain = ways;
  for (size_t i = 0; i < plain.size(); i += 4) ways.push_back(in_bf16(plain[i]));
  return ways;
}

TEST(Checkpoint, EveryLayoutLoadsFromEveryLayoutBitForBit) {
  const auto ways = with_bf16(all_ways());
  const CheckpointsFolder folder;
  for (const auto& saved : ways) {
    const auto state = train_and_save(saved, folder / "one", 2);
    for (const auto& way : ways) {
      SCOPED_TRACE(saved.name + " loaded as " + way.name);
      expect_same_state(load_whole(way, folder / "one"), state);
    }
  }
}

TEST(Checkpoint, TrainingGoesOnAsIfItHadNotBeenInterrupted) {
  for (const auto& plain : all_ways()) {
    for (const auto& way : {plain, in_bf16(plain)}) {
      if (plain.ranks != 2 && way.options.param_dtype) continue;
      SCOPED_TRACE(way.name);
      const CheckpointsFolder folder;
      WholeState whole, first, second;
      std::mutex mutex;
      run_ranks({.ranks = way.ranks}, [&](const World& world) {
        RankRun run(world, way.options, false);
        run.train(0, 10, &first);
        save_checkpoint(folder / "ten", run.sharded, run.optimizer, {.step = 10});
        run.train(10, 20, &whole);
        run.collect(whole, mutex);
      });
      run_ranks({.ranks = way.ranks}, [&](const World& world) {
        RankRun run(world, way.options, true);
        const auto loaded = load_checkpoint(folder / "ten", run.sharded, run.optimizer);
        run.train(static_cast<int>(loaded.progress.step), 20, &second);
        run.collect(second, mutex);
      });
      EXPECT_EQ(second.losses, whole.losses);
      expect_same_state(second, whole);
    }
  }
}

TEST(Checkpoint, WeightsLieInFilesOfTheirOwn) {
  const CheckpointsFolder folder;
  train_and_save(plain_way(2), folder / "one", 1);
  EXPECT_THAT(entries_of(folder / "one"),
              UnorderedElementsAre("weights-00000.bin", "weights-00001.bin", "exp_avg-00000.bin",
                                   "exp_avg-00001.bin", "exp_avg_sq-00000.bin",
                                   "exp_avg_sq-00001.bin", "manifest.json"));
}

TEST(Checkpoint, WhatSeveralRanksHoldIsWrittenOnce) {
  const CheckpointsFolder folder;
  train_and_save(plain_way(3, Strategy::no_shard), folder / "whole", 1);
  EXPECT_THAT(entries_of(folder / "whole"),
              UnorderedElementsAre("weights-00000.bin", "exp_avg-00000.bin", "exp_avg_sq-00000.bin",
                                   "manifest.json"));
  auto hybrid = plain_way(4, Strategy::hybrid_shard);
  hybrid.options.sharding.sharding_factor = 2;
  train_and_save(hybrid, folder / "hybrid", 1);
  EXPECT_EQ(entries_of(folder / "hybrid").size(), 7u);
}

TEST(Checkpoint, LoadsWithoutAnOptimizerAndLeavesItsStatesUnread) {
  const CheckpointsFolder folder;
  const auto saved = train_and_save(plain_way(2), folder / "one", 2);
  const auto manifest = stored::read_manifest(folder / "one");
  int64_t weight_bytes = 0;
  for (const auto& file : manifest.files) {
    if (file.name.starts_with("weights")) weight_bytes += file.bytes;
  }
  ::unlink((folder / "one/exp_avg-00000.bin").c_str());  // nobody needs it
  RankRun run(World::single(), plain_way(1).options, true);
  const auto loaded = load_checkpoint(folder / "one", run.sharded);
  EXPECT_EQ(loaded.bytes_read, weight_bytes);
  EXPECT_FALSE(loaded.restored_rng);
  WholeState state;
  std::mutex mutex;
  run.collect(state, mutex);
  for (const auto& [name, tensor] : saved.tensors) {
    if (!name.starts_with("weights")) continue;
    EXPECT_TRUE(at::equal(state.tensors.at(name), tensor)) << name;
  }
  EXPECT_EQ(run.optimizer.num_steps(), 0);
}

TEST(Checkpoint, EveryRankReadsTheBlocksOfItsOwnPiecesOnly) {
  const CheckpointsFolder folder;
  {
    Wide model(1024);
    auto sharded = shard(model, World::single());
    AdamW optimizer(sharded, {});
    save_checkpoint(folder / "one", sharded, optimizer, {});
  }
  run_ranks({.ranks = 4}, [&](const World& world) {
    auto model = deferred<Wide>(1024);
    auto sharded = shard(model, world);
    AdamW optimizer(sharded, {});
    const auto loaded = load_checkpoint(folder / "one", sharded, optimizer);
    // A quarter of 4 MiB and 4 KiB, in three files, and at both ends the rest of a block.
    EXPECT_LE(loaded.bytes_read, 3 * (2 * stored::kBlockBytes + 8192));
    EXPECT_GE(loaded.bytes_read, 3 * stored::kBlockBytes);
  });
}

// A schedule may have changed any of them; another run is made with others.
TEST(Checkpoint, SettingsThatSchedulesChangeComeBack) {
  const CheckpointsFolder folder;
  RankRun saved(World::single(), plain_way(1).options, false);
  saved.train(0, 3);
  saved.optimizer.set_lr(0.0125);
  saved.optimizer.set_momentum(0.75);
  saved.optimizer.set_beta2(0.875);
  save_checkpoint(folder / "one", saved.sharded, saved.optimizer, {.step = 3});
  RankRun loaded(World::single(), plain_way(1).options, true);
  load_checkpoint(folder / "one", loaded.sharded, loaded.optimizer);
  EXPECT_EQ(loaded.optimizer.lr(), 0.0125);
  EXPECT_EQ(loaded.optimizer.momentum(), 0.75);
  EXPECT_EQ(loaded.optimizer.beta2(), 0.875);
  EXPECT_EQ(loaded.optimizer.num_steps(), 3);
}

TEST(Checkpoint, RanksThatSaveUnderDifferentNamesTakeRankZerosOrFail) {
  for (const auto* name : {"Fail", "warn", "IGNORE"}) {
    const CheckpointsFolder folder;
    const auto validation = tag_validation_of(name);
    run_ranks({.ranks = 2}, [&](const World& world) {
      RankRun run(world, plain_way(2).options, false);
      const auto save = [&] {
        save_checkpoint(folder / (world.rank() == 0 ? "mine" : "other"), run.sharded, run.optimizer,
                        {}, {.tag_validation = validation});
      };
      if (validation != TagValidation::fail) return save();
      EXPECT_EQ(std::string(error_of_call(save).what()),
                "save_checkpoint: rank 1 saves as 'other' and rank 0 as 'mine'; all ranks must "
                "save under one name (tag_validation)");
    });
    if (validation == TagValidation::fail) {
      EXPECT_TRUE(entries_of(folder.path()).empty());
    } else {
      EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("mine", "latest"));
      EXPECT_EQ(stored::last_checkpoint(folder.path()).folder, folder / "mine");
    }
  }
  EXPECT_EQ(std::string(error_of_call([] { tag_validation_of("never"); }).what()),
            "tag_validation: is 'never', expected Ignore, Warn or Fail");
}

TEST(Checkpoint, FilesWrittenBesideItAreInItWhenItHasItsName) {
  const CheckpointsFolder folder;
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    CheckpointOptions options;
    options.write_beside = [&](const std::string& part) {
      EXPECT_EQ(part, folder / "one.part");
      if (world.rank() == 0) std::ofstream(part + "/note") << "beside";
    };
    save_checkpoint(folder / "one", run.sharded, run.optimizer, {}, options);
    EXPECT_EQ(read_file(folder / "one/note"), "beside");
    options.write_beside = [](const std::string&) { fail("no room"); };
    EXPECT_EQ(std::string(error_of_call([&] {
                            save_checkpoint(folder / "two", run.sharded, run.optimizer, {},
                                            options);
                          }).what()),
              "no room");
  });
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("one", "latest"));
}

TEST(Checkpoint, KeepsTheRandomNumbersOfEveryRank) {
  const CheckpointsFolder folder;
  RankRun run(World::single(), plain_way(1).options, false);
  at::manual_seed(77);
  (void)at::rand({5});
  save_checkpoint(folder / "one", run.sharded, run.optimizer, {});
  const auto expected = at::rand({5});
  (void)at::rand({3});
  const auto loaded = load_checkpoint(folder / "one", run.sharded, run.optimizer);
  EXPECT_TRUE(loaded.restored_rng);
  EXPECT_TRUE(at::equal(at::rand({5}), expected));

  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun other(world, plain_way(2).options, true);
    EXPECT_FALSE(load_checkpoint(folder / "one", other.sharded, other.optimizer).restored_rng);
  });
}

TEST(Checkpoint, GivesTheOptimizerItsRatesAndStepsBack) {
  const CheckpointsFolder folder;
  RankRun run(World::single(), plain_way(1).options, false);
  run.train(0, 3);
  run.optimizer.set_lr(0.125);
  run.optimizer.set_momentum(0.5);
  save_checkpoint(folder / "one", run.sharded, run.optimizer, {});
  RankRun other(World::single(), plain_way(1).options, true);
  load_checkpoint(folder / "one", other.sharded, other.optimizer);
  EXPECT_EQ(other.optimizer.num_steps(), 3);
  EXPECT_EQ(other.optimizer.lr(), 0.125);
  EXPECT_EQ(other.optimizer.momentum(), 0.5);
}

TEST(Checkpoint, AnotherOptimizerIsNamedBesideTheOneThatSaved) {
  const CheckpointsFolder folder;
  RankRun run(World::single(), plain_way(1).options, false);
  save_checkpoint(folder / "adamw", run.sharded, run.optimizer, {});
  save_checkpoint(folder / "bare", run.sharded, {});
  Lion lion(run.sharded, {});
  const auto error = error_of_call([&] { load_checkpoint(folder / "adamw", run.sharded, lion); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_THAT(error.what(), HasSubstr("was saved by AdamW with the states [exp_avg, exp_avg_sq], "
                                      "and this run's optimizer is Lion with [exp_avg]"));
  EXPECT_THAT(
      error_of_call([&] { load_checkpoint(folder / "bare", run.sharded, run.optimizer); }).what(),
      HasSubstr("was saved without an optimizer, and AdamW needs its states (exp_avg, "
                "exp_avg_sq)"));
}

TEST(Checkpoint, ReplacesOneOfTheSameNameAndPointsLatestAtIt) {
  const CheckpointsFolder folder;
  train_and_save(plain_way(2), folder / "step-000001", 1);
  const auto second = train_and_save(plain_way(3), folder / "step-000001", 2);
  expect_same_state(load_whole(plain_way(1), folder / "step-000001"), second);
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("step-000001", "latest"));
  EXPECT_EQ(read_file(folder / "latest"), "step-000001\n");
}

TEST(Checkpoint, DoesNotReplaceWhatIsNoCheckpoint) {
  const CheckpointsFolder folder;
  ::mkdir((folder / "thesis").c_str(), 0755);
  ::mkdir((folder / "extension").c_str(), 0755);
  const std::string manifest = R"({"manifest_version": 3, "name": "an extension of a browser"})";
  std::ofstream(folder / "thesis/chapter") << "text";
  std::ofstream(folder / "extension/manifest.json") << manifest;
  std::ofstream(folder / "letter") << "text";
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    for (const char* name : {"thesis", "extension", "letter"}) {
      const auto error =
          error_of_call([&] { save_checkpoint(folder / name, run.sharded, run.optimizer, {}); });
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_THAT(error.what(),
                  HasSubstr(fmt::format("/{}: exists and is not a checkpoint", name)));
    }
  });
  EXPECT_EQ(read_file(folder / "thesis/chapter"), "text");
  EXPECT_EQ(read_file(folder / "extension/manifest.json"), manifest);
  EXPECT_EQ(read_file(folder / "letter"), "text");
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("thesis", "extension", "letter"));
}

TEST(Checkpoint, ProgressAndTheCallersOwnComeBack) {
  const CheckpointsFolder folder;
  RankRun run(World::single(), plain_way(1).options, false);
  Progress progress;
  progress.step = 7;
  progress.num_skipped = 2;
  progress.scheduler_steps = 5;
  progress.loss_scale = LossScaler::State{1024.0, 9, 4, 1};
  progress.data = DataPosition{
      .step = 7,
      .micro_batch = 3,
      .place = DataPlace{
          .epoch = 2, .example = 5, .num_examples = 9, .order = "shuffled", .seed = ~uint64_t{0}}};
  progress.best = BestEvaluation{4, 0.1};
  progress.extra = R"({"run":"a","list":[1,2]})";
  save_checkpoint(folder / "one", run.sharded, run.optimizer, progress);
  const auto loaded = load_checkpoint(folder / "one", run.sharded, run.optimizer).progress;
  EXPECT_EQ(loaded.step, 7);
  EXPECT_EQ(loaded.num_skipped, 2);
  EXPECT_EQ(loaded.scheduler_steps, 5);
  EXPECT_EQ(loaded.loss_scale->scale, 1024.0);
  EXPECT_EQ(loaded.loss_scale->iteration, 9);
  EXPECT_EQ(loaded.loss_scale->last_overflow, 4);
  EXPECT_EQ(loaded.loss_scale->hysteresis, 1);
  EXPECT_EQ(loaded.data->step, 7);
  EXPECT_EQ(loaded.data->micro_batch, 3);
  EXPECT_EQ(loaded.best->step, 4);
  EXPECT_EQ(loaded.best->loss, 0.1);
  EXPECT_EQ(loaded.extra, R"({"list":[1,2],"run":"a"})");
}

TEST(Checkpoint, ARankThatDoesNotComeToASaveIsNamed) {
  const CheckpointsFolder folder;
  std::promise<std::string> said;
  ThreadRanks ranks{.ranks = 2};
  ranks.timeouts.checkpoint = std::chrono::milliseconds(300);
  run_ranks(ranks, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    if (world.rank() == 1) {
      said.get_future().wait();
      return;
    }
    const auto error =
        error_of_call([&] { save_checkpoint(folder / "one", run.sharded, run.optimizer, {}); });
    EXPECT_THAT(error.what(), HasSubstr("save_checkpoint"));
    EXPECT_THAT(error.what(), HasSubstr("waits for rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("raise timeouts.checkpoint (--checkpoint-timeout)"));
    said.set_value(error.what());
  });
  EXPECT_EQ(stored::last_checkpoint(folder.path()).folder, "");
}

TEST(Checkpoint, ADeferredModelWithoutValuesIsNotSaved) {
  const CheckpointsFolder folder;
  RankRun run(World::single(), plain_way(1).options, true);
  EXPECT_THAT(error_of_call([&] {
                save_checkpoint(folder / "one", run.sharded, run.optimizer, {});
              }).what(),
              HasSubstr("have no values yet"));
  EXPECT_TRUE(entries_of(folder.path()).empty());
}

}  // namespace
}  // namespace fullshard::testing
