// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/winning_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/config/offload.h"
#include "fullshard/tuning/ladder.h"
#include "fullshard/tuning/rung_config.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::tuning {
namespace {

using ::testing::HasSubstr;

const PlanOptions kTwoRanks = {.ranks = 2, .device = "cuda"};

Plan default_plan(std::vector<FlagValue> flags = {}) {
  PlanOptions options = kTwoRanks;
  options.flags = std::move(flags);
  return Plan::from_words("", "", options);
}

// What decides how a run behaves.
void expect_same_plan(const Plan& plan, const Plan& other) {
  EXPECT_EQ(*plan.sharding.stage, *other.sharding.stage);
  EXPECT_EQ(*plan.offload.parameters.device, *other.offload.parameters.device);
  EXPECT_EQ(*plan.offload.optimizer.device, *other.offload.optimizer.device);
  EXPECT_EQ(*plan.offload.optimizer.nvme_path, *other.offload.optimizer.nvme_path);
  EXPECT_EQ(*plan.recompute.enabled, *other.recompute.enabled);
  EXPECT_EQ(*plan.precision.bf16, *other.precision.bf16);
  EXPECT_EQ(*plan.precision.fp16, *other.precision.fp16);
  EXPECT_EQ(*plan.optimizer.type, *other.optimizer.type);
  EXPECT_EQ(*plan.optimizer.lr, *other.optimizer.lr);
  EXPECT_EQ(*plan.optimizer.betas, *other.optimizer.betas);
  EXPECT_EQ(*plan.optimizer.eps, *other.optimizer.eps);
  EXPECT_EQ(*plan.scheduler.type, *other.scheduler.type);
  EXPECT_EQ(*plan.clipping, *other.clipping);
  EXPECT_EQ(plan.batch_sizes(2).micro_batch, other.batch_sizes(2).micro_batch);
  EXPECT_EQ(plan.batch_sizes(2).global_batch, other.batch_sizes(2).global_batch);
}

TEST(RungConfig, OfEveryRungIsReadAsTheRungSays) {
  const testing::TemporaryFolder folder;
  const ConfigBase base{.text = base_config(default_plan()), .disk = folder.path()};
  for (const Rung& step : ladder({.ranks = 2, .on_gpus = true})) {
    const Rung rung = step.with_batch(3);
    SCOPED_TRACE(rung.title());
    const Plan plan = Plan::parse(rung_config(base, rung), "rung", kTwoRanks);
    EXPECT_EQ(*plan.sharding.stage, rung.stage);
    EXPECT_EQ(*plan.recompute.enabled, rung.recompute);
    EXPECT_EQ(*plan.precision.bf16, rung.sixteen_bit);
    EXPECT_EQ(plan.batch_sizes(2).micro_batch, 3);
    EXPECT_EQ(plan.batch_sizes(2).accumulation, 1);
    const tiers::TierOptions offload = config::offload_of(plan);
    const bool is_disk = rung.offloaded == Offloaded::to_disk;
    const bool both = is_disk || rung.offloaded == Offloaded::both;
    const tiers::Tier away = is_disk ? tiers::Tier::disk : tiers::Tier::host;
    EXPECT_EQ(offload.parameters.tier,
              both || rung.offloaded == Offloaded::parameters ? away : tiers::Tier::device);
    EXPECT_EQ(offload.optimizer.tier,
              both || rung.offloaded == Offloaded::optimizer ? away : tiers::Tier::device);
    EXPECT_EQ(offload.optimizer.folder, is_disk ? folder.path() : "");
  }
}

TEST(RungConfig, HasDeepSpeedsKeys) {
  const ConfigBase base{.text = base_config(default_plan({{"--lr", "0.001"}})), .disk = "/disk"};
  const auto json = nlohmann::json::parse(rung_config(base, ladder({.ranks = 2}).back()));
  EXPECT_EQ(json["zero_optimization"]["stage"], 3);
  EXPECT_EQ(json["zero_optimization"]["offload_param"]["device"], "nvme");
  EXPECT_EQ(json["zero_optimization"]["offload_optimizer"]["nvme_path"], "/disk");
  EXPECT_EQ(json["activation_checkpointing"]["number_checkpoints"], 1);
  EXPECT_EQ(json["bf16"]["enabled"], true);
  EXPECT_EQ(json["train_micro_batch_size_per_gpu"], 1);
  EXPECT_EQ(json["optimizer"]["type"], "AdamW");
  EXPECT_EQ(json["optimizer"]["params"]["lr"], 0.001);
  EXPECT_EQ(json["gradient_clipping"], 1.0);
  EXPECT_FALSE(json.contains("train_batch_size"));
  EXPECT_FALSE(json["zero_optimization"].contains("stage3_gather_16bit_weights_on_model_save"));
}

// `train --auto` must not learn otherwise than `train`.
TEST(RungConfig, ChangesNothingThatALossDependsOn) {
  const Plan plain = default_plan({{"--lr", "0.01"}, {"--clip", "0.5"}, {"--accumulate", "4"}});
  const Plan tuned =
      Plan::parse(rung_config({.text = base_config(plain)}, {.micro_batch = 8}), "rung", kTwoRanks);
  EXPECT_EQ(*tuned.sharding.stage, 0);
  EXPECT_EQ(*tuned.optimizer.type, *plain.optimizer.type);
  EXPECT_EQ(*tuned.optimizer.lr, 0.01);
  EXPECT_EQ(*tuned.optimizer.weight_decay, *plain.optimizer.weight_decay);
  EXPECT_EQ(*tuned.scheduler.type, *plain.scheduler.type);
  EXPECT_EQ(*tuned.clipping, 0.5);
  EXPECT_EQ(tuned.batch_sizes(2).global_batch, plain.batch_sizes(2).global_batch);
}

TEST(RungConfig, ReplacesWhatAFileSaysOfTheLadderAndKeepsTheRest) {
  const Plan file = Plan::parse(R"({"train_batch_size": 24, "gradient_accumulation_steps": 3,
    "fp16": {"enabled": true}, "gradient_clipping": 0.25,
    "activation_checkpointing": {"cpu_checkpointing": true},
    "optimizer": {"type": "Adam", "params": {"lr": 0.5}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})",
                                "ds.json", kTwoRanks);
  const std::string base = base_config(file);
  EXPECT_EQ(examples_per_step(base, 2), 12);
  const Plan plan =
      Plan::parse(rung_config({.text = base}, {.stage = 1, .micro_batch = 6}), "rung", kTwoRanks);
  EXPECT_EQ(*plan.sharding.stage, 1);
  EXPECT_EQ(*plan.offload.optimizer.device, "none");
  EXPECT_FALSE(*plan.recompute.enabled);
  EXPECT_EQ(plan.batch_sizes(2).global_batch, 24);
  EXPECT_EQ(plan.batch_sizes(2).accumulation, 2);
  EXPECT_TRUE(*plan.precision.fp16);
  EXPECT_EQ(*plan.clipping, 0.25);
  EXPECT_EQ(*plan.optimizer.lr, 0.5);
}

TEST(RungConfig, KeepsWhatFlagsHaveSettled) {
  const ConfigBase base{
      .text = base_config(default_plan({{"--zero-stage", "2"}, {"--offload", "optimizer"}})),
      .keeps_stage = true,
      .keeps_recompute = true,
      .keeps_offload = true};
  const Plan plan = Plan::parse(rung_config(base, {}), "rung", kTwoRanks);
  EXPECT_EQ(*plan.sharding.stage, 2);
  EXPECT_EQ(*plan.offload.optimizer.device, "cpu");
  EXPECT_TRUE(*plan.recompute.enabled);
}

TEST(RungConfig, RefusesABatchThatRanksCannotShare) {
  EXPECT_THAT(testing::message_of([] { examples_per_step(R"({"train_batch_size": 7})", 2); }),
              HasSubstr("train_batch_size: is 7, which 2 ranks cannot share equally"));
}

TEST(WinningConfig, IsReadBackFromBothFormats) {
  const testing::TemporaryFolder folder;
  const ConfigBase base{.text = base_config(default_plan()), .disk = folder.path()};
  const auto rungs = ladder({.ranks = 2, .on_gpus = true});
  for (const Rung& rung : {rungs[3].with_batch(5), rungs[7], rungs[9]}) {
    SCOPED_TRACE(rung.title());
    const WinningConfig winner{.text = rung_config(base, rung), .ranks = 2, .on_gpus = true};
    const Plan meant = Plan::parse(winner.text, "rung", kTwoRanks);
    const auto files = write_winning_config(winner, ConfigFormat::accelerate, folder.path());
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(files[0], folder.file("tuned.yaml"));
    expect_same_plan(Plan::load(files[0], kTwoRanks), meant);
    expect_same_plan(Plan::load(files[1], kTwoRanks), meant);
    EXPECT_EQ(*Plan::load(files[0]).launch.ranks, 2);
  }
}

// Accelerate refuses any other key of DeepSpeed's, and mixed_precision, beside the file.
TEST(WinningConfig, ForAccelerateOnlyNamesTheFile) {
  EXPECT_EQ(accelerate_text({.ranks = 3, .on_gpus = false}, "/run/tuned.json"),
            "compute_environment: LOCAL_MACHINE\n"
            "distributed_type: DEEPSPEED\n"
            "deepspeed_config:\n"
            "  deepspeed_config_file: \"/run/tuned.json\"\n"
            "num_machines: 1\n"
            "num_processes: 3\n"
            "use_cpu: true\n");
}

}  // namespace
}  // namespace fullshard::tuning
