// SPDX-License-Identifier: Apache-2.0
// What a trainer saves, and when.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/diff_checkpoints.h"
#include "fullshard/checkpoint/save_request.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/run/trainer.h"
#include "tests/files.h"
#include "tests/train/curves.h"
#include "tests/train/fixture_models.h"
#include "tests/train/held_open.h"

namespace fullshard::testing {
namespace {

using ::testing::Contains;
using ::testing::Not;

// For checkpoints, which go with it.
class RunFolder {
 public:
  ~RunFolder() {
    for (const auto& name : entries_of(folder_.path())) {
      const std::string inner = folder_.file(name);
      for (const auto& file : entries_of(inner)) ::unlink((inner + "/" + file).c_str());
      ::rmdir(inner.c_str());
    }
  }
  const std::string& path() const { return folder_.path(); }
  std::string operator/(const std::string& name) const { return folder_.file(name); }

 private:
  TemporaryFolder folder_;
};

// A rank of a run of the smallest model.
struct SmallRun {
  SmallRun(const World& world, const std::string& configuration, bool has_values)
      : plan(Plan::parse(configuration, "test", {.ranks = world.size()})),
        model(make_deferred_model(find_model(kModels + "llama"))),
        sharded(model, world, shard_options_of(plan)),
        data(model->vocabulary(), false) {
    if (has_values) make_new_weights(*model, sharded, 1);
  }

  std::map<std::string, at::Tensor> masters() const {
    const at::NoGradGuard no_grad;
    std::map<std::string, at::Tensor> values;
    for (const auto& piece : sharded.pieces()) {
      values[fmt::format("{} {}", piece.name, piece.begin)] = piece.master.clone();
    }
    return values;
  }

  Plan plan;
  std::shared_ptr<LanguageModel> model;
  ShardedModel sharded;
  UnevenData data;
};

void expect_equal_masters(const std::map<std::string, at::Tensor>& found,
                          const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    EXPECT_TRUE(at::equal(found.at(name), values)) << name;
  }
}

// The writer begins only when the next step has changed every parameter: what it writes then must
// have been copied before.
TEST(TrainingCheckpoints, AnAsynchronousSaveIsSettledBeforeTheNextStep) {
  const RunFolder folder;
  SmallRun run(World::single(), fsdp_configuration("NO_SHARD"), true);
  HeldOpen held("step-000002.part/weights-00000.bin");
  Trainer trainer(*run.model, run.sharded, run.plan, run.data, nullptr,
                  {.steps = 3,
                   .global_batch = 4,
                   .micro_batch = 4,
                   .checkpoint_folder = folder.path(),
                   .save_every = 2,
                   .async_save = true});
  std::map<std::string, at::Tensor> after_two, after_three;
  trainer.run(
      [&](const StepRecord& record) {
        if (record.step == 2) after_two = run.masters();
        if (record.step < 3) return;
        after_three = run.masters();
        EXPECT_TRUE(held.wait_for_opener(std::chrono::seconds(60)));
        held.release();
      },
      {}, {});
  EXPECT_FALSE(at::equal(after_two.begin()->second, after_three.begin()->second));
  SmallRun other(World::single(), fsdp_configuration("NO_SHARD"), false);
  load_checkpoint(folder / "step-000002", other.sharded);
  expect_equal_masters(other.masters(), after_two);
}

// It was free when the run looked, and is not when the run saves.
TEST(TrainingCheckpoints, WhatIsInTheWayOfANamedOneDoesNotEndTheRun) {
  for (const bool is_async : {false, true}) {
    const RunFolder folder;
    std::atomic<int> last_step = 0;
    run_ranks({.ranks = 2}, [&](const World& world) {
      SmallRun run(world, fsdp_configuration("FULL_SHARD"), true);
      Trainer trainer(*run.model, run.sharded, run.plan, run.data, nullptr,
                      {.steps = 3,
                       .global_batch = 4,
                       .micro_batch = 2,
                       .checkpoint_folder = folder.path(),
                       .save_every = 3,
                       .async_save = is_async});
      if (world.rank() == 0) checkpoint::ask_for_save(folder.path(), "mine");
      trainer.run(
          [&](const StepRecord& record) {
            last_step = static_cast<int>(record.step);
            if (record.step > 1) return;
            ::mkdir((folder / "mine").c_str(), 0755);
            std::ofstream(folder / "mine/notes.txt") << "mine";
          },
          {}, {});
    });
    EXPECT_EQ(last_step, 3);
    EXPECT_THAT(entries_of(folder.path()),
                ::testing::UnorderedElementsAre("mine", "step-000003", "latest"));
    EXPECT_EQ(read_file(folder / "mine/notes.txt"), "mine");
  }
}

TEST(TrainingCheckpoints, AFullStateDictHasTheWeightsForOtherProgramsBesideIt) {
  for (const bool is_full : {false, true}) {
    const RunFolder folder;
    run_ranks({.ranks = 2}, [&](const World& world) {
      SmallRun run(world, fsdp_configuration("FULL_SHARD"), true);
      Trainer trainer(*run.model, run.sharded, run.plan, run.data, nullptr,
                      {.steps = 1,
                       .global_batch = 4,
                       .micro_batch = 2,
                       .checkpoint_folder = folder.path(),
                       .save_every = 1,
                       .saves_whole_weights = is_full});
      trainer.run({}, {}, {});
    });
    const std::string saved = folder / "step-000001";
    const auto names = entries_of(saved);
    EXPECT_THAT(names, Contains("manifest.json"));
    if (is_full) {
      EXPECT_THAT(names, Contains("config.json"));
      const auto diff = checkpoint::diff_checkpoints(
          stored::open_any(saved), stored::open_any(saved + "/model.safetensors"), 0);
      EXPECT_TRUE(diff.differences.empty());
      EXPECT_GT(diff.num_compared, 5);
    } else {
      EXPECT_THAT(names, Not(Contains("model.safetensors")));
    }
  }
}

TEST(TrainingCheckpoints, MastersBeginAtThe16BitValuesWhereFp32CopiesAreNotWanted) {
  const RunFolder folder;
  const auto configuration = [](bool takes_fp32) {
    return fmt::format(R"({{"train_batch_size": 4, "bf16": {{"enabled": true}},
      "zero_optimization": {{"stage": 2, "load_from_fp32_weights": {}}}}})",
                       takes_fp32);
  };
  const TrainerOptions options = {.steps = 1,
                                  .global_batch = 4,
                                  .micro_batch = 4,
                                  .checkpoint_folder = folder.path(),
                                  .save_every = 1};
  std::map<std::string, at::Tensor> saved;
  {
    SmallRun run(World::single(), configuration(true), true);
    Trainer trainer(*run.model, run.sharded, run.plan, run.data, nullptr, options);
    trainer.run({}, {}, {});
    saved = run.masters();
  }
  for (const bool takes_fp32 : {true, false}) {
    SmallRun run(World::single(), configuration(takes_fp32), false);
    Trainer trainer(*run.model, run.sharded, run.plan, run.data, nullptr, options);
    trainer.resume(folder / "step-000001");
    auto expected = saved;
    bool has_rounded = false;
    for (auto& [name, values] : expected) {
      const auto rounded = values.to(at::kBFloat16).to(values.scalar_type());
      has_rounded = has_rounded || !at::equal(rounded, values);
      if (!takes_fp32) values = rounded;
    }
    EXPECT_TRUE(has_rounded);
    expect_equal_masters(run.masters(), expected);
  }
}

}  // namespace
}  // namespace fullshard::testing
