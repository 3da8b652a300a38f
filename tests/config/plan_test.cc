// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "fullshard/base/error.h"

namespace fullshard::config {
namespace {

using ::testing::ElementsAre;

std::string plan_error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "none";
}

TEST(Plan, HoldsDeepSpeedsValuesWithTheirLines) {
  const Plan plan = Plan::parse(R"({
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8,
                          "stage3_max_live_parameters": 7},
    "optimizer": {"type": "lamb", "params": {"lr": 0.25, "betas": [0.8, 0.9]}},
    "fp16": {"enabled": true, "hysteresis": 4},
    "gradient_clipping": 0.5
  })",
                                "ds.json");
  EXPECT_EQ(plan.sharding.stage.value, 3);
  EXPECT_EQ(plan.sharding.stage.origin.text(), "ds.json:2");
  EXPECT_EQ(plan.sharding.reduce_bucket_size.value, 500'000'000);
  EXPECT_EQ(plan.sharding.max_live_parameters.value, 7);
  EXPECT_EQ(plan.sharding.max_live_parameters.origin.text(), "ds.json:3");
  EXPECT_EQ(plan.sharding.sub_group_size.value, 1'000'000'000);
  EXPECT_EQ(plan.sharding.sub_group_size.origin.text(), "default");
  EXPECT_TRUE(plan.sharding.overlap_comm.value);
  EXPECT_EQ(plan.sharding.overlap_comm.origin.text(), "derived");
  EXPECT_EQ(plan.optimizer.type.value, "Lamb");
  EXPECT_EQ(plan.optimizer.lr.value, 0.25);
  EXPECT_THAT(plan.optimizer.betas.value, ElementsAre(0.8, 0.9));
  EXPECT_TRUE(plan.precision.fp16.value);
  EXPECT_EQ(plan.precision.scale.hysteresis.value, 4);
  EXPECT_EQ(plan.clipping.value, 0.5);
}

TEST(Plan, TakesTheTrainersAdamWWithoutAnOptimizerSection) {
  const Plan plan = Plan::parse(R"({"zero_optimization": {"stage": 2}})");
  EXPECT_EQ(plan.optimizer.type.value, "AdamW");
  EXPECT_EQ(plan.optimizer.lr.value, 5e-5);
  EXPECT_EQ(plan.scheduler.type.value, "WarmupDecayLR");
  EXPECT_FALSE(plan.sharding.overlap_comm.value);
}

TEST(Plan, NamesTheFileWhereTheLauncherRepeatsItsNumberOfRanks) {
  const std::string text = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {}\n";
  EXPECT_EQ(Plan::parse(text, "a.yaml", {.ranks = 2}).launch.ranks.origin.text(), "a.yaml:2");
  EXPECT_EQ(Plan::parse(text, "a.yaml", {.ranks = 3}).launch.ranks.origin.text(), "flag");
}

TEST(Plan, HoldsAcceleratesValues) {
  const Plan plan = Plan::parse(R"(distributed_type: FSDP
num_processes: 4
num_machines: 2
main_process_ip: 10.0.0.1
main_process_port: 29501
mixed_precision: bf16
use_cpu: true
fsdp_config:
  fsdp_sharding_strategy: 2
  fsdp_backward_prefetch: BACKWARD_POST
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: GPT2Block, T5Block
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_activation_checkpointing: true
)",
                                "a.yaml");
  EXPECT_EQ(plan.launch.ranks.value, 4);
  EXPECT_EQ(plan.launch.ranks.origin.text(), "a.yaml:2");
  EXPECT_EQ(plan.launch.address.value, "10.0.0.1");
  EXPECT_EQ(plan.launch.port.value, 29501);
  EXPECT_EQ(plan.launch.device.value, "cpu");
  EXPECT_EQ(plan.sharding.strategy.value, "SHARD_GRAD_OP");
  EXPECT_EQ(plan.sharding.backward_prefetch.value, "BACKWARD_POST");
  EXPECT_EQ(plan.wrap.policy.value, "TRANSFORMER_BASED_WRAP");
  EXPECT_THAT(plan.wrap.classes.value, ElementsAre("GPT2Block", "T5Block"));
  EXPECT_EQ(plan.checkpoint.state_dict_type.value, "SHARDED_STATE_DICT");
  EXPECT_TRUE(plan.recompute.enabled.value);
  EXPECT_TRUE(plan.precision.bf16.value);
}

TEST(Plan, HonoursVersion1sReshardAfterForwardAsTheStrategy) {
  const Plan plan =
      Plan::parse("distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: NO_SHARD\n");
  EXPECT_EQ(plan.sharding.strategy.value, "NO_SHARD");
  ASSERT_EQ(plan.warnings().size(), 1u);
  EXPECT_EQ(plan.warnings()[0].key, "fsdp_config.fsdp_reshard_after_forward");
}

TEST(Plan, DefaultsOfVersion2AreItsOwn) {
  const Plan plan = Plan::parse("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n");
  EXPECT_EQ(plan.checkpoint.state_dict_type.value, "SHARDED_STATE_DICT");
  EXPECT_EQ(plan.sharding.reshard_after_forward.value, true);
  const Plan first = Plan::parse("distributed_type: FSDP\n");
  EXPECT_EQ(first.checkpoint.state_dict_type.value, "FULL_STATE_DICT");
  EXPECT_EQ(first.sharding.backward_prefetch.value, "NO_PREFETCH");
}

TEST(Plan, ReadsDeepSpeedInsideAccelerate) {
  const Plan plan = Plan::parse(
      "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: fp16\n"
      "deepspeed_config:\n  zero_stage: 3\n  gradient_accumulation_steps: 4\n");
  EXPECT_EQ(plan.sharding.stage.value, 3);
  EXPECT_EQ(plan.sharding.stage.origin.key, "deepspeed_config.zero_stage");
  EXPECT_TRUE(plan.precision.fp16.value);
  EXPECT_EQ(plan.batch.global.value, 2 * 4 * 8);
  const Plan bare = Plan::parse("distributed_type: DEEPSPEED\n");
  EXPECT_EQ(bare.sharding.stage.value, 2);
}

TEST(Plan, AppliesWhatXlaSettingsHaveAnEquivalentFor) {
  const Plan plan = Plan::parse(R"({"xla": true, "xla_fsdp_settings": {
    "compute_dtype": "bfloat16", "buffer_dtype": "float32", "reshard_after_forward": false,
    "fp32_reduce_scatter": true}, "xla_fsdp_grad_ckpt": true})");
  EXPECT_TRUE(plan.precision.bf16.value);
  EXPECT_EQ(plan.precision.buffer_dtype.value, "float32");
  EXPECT_EQ(plan.precision.communication_data_type.value, "fp32");
  EXPECT_EQ(plan.sharding.reshard_after_forward.value, false);
  EXPECT_TRUE(plan.recompute.enabled.value);
}

TEST(Plan, ListsAllProblemsInOneError) {
  EXPECT_EQ(
      plan_error_of([] { Plan::parse("{\"stage\": 3,\n\"fp16\": {\"enabled\": 2}}", "d.json"); }),
      "d.json:1: stage: unknown key; did you mean 'zero_optimization.stage'?\n"
      "error: d.json:2: fp16.enabled: is 2, expected true or false or \"auto\"\n"
      "note: --unknown-keys warn lets unknown keys pass, with a warning each");
}

TEST(Plan, BuiltInCodeIsCheckedTheSame) {
  Plan plan;
  plan.precision.fp16 = true;
  plan.precision.bf16 = true;
  plan.sharding.factor = 3;
  EXPECT_EQ(plan_error_of([&] { plan.check(4); }),
            "precision.bf16: is true, and so is fp16; switch one of them off\n"
            "error: sharding.factor: is 3, expected a divisor of 4 ranks: 1, 2, 4");
  plan.precision.bf16 = false;
  EXPECT_EQ(plan_error_of([&] { plan.check(6); }), "none");
}

TEST(Plan, RefusesOffloadOnCudaByName) {
  const std::string text =
      R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
          "train_micro_batch_size_per_gpu": 1})";
  EXPECT_TRUE(Plan::parse(text, "d.json", {.device = "cuda"}).warnings().empty());
  const Plan plan = Plan::parse(text, "d.json", {.device = "cpu"});
  ASSERT_EQ(plan.warnings().size(), 1u);
  EXPECT_EQ(plan.warnings()[0].message,
            "on a CPU device host memory holds everything already: nothing is moved");
}

TEST(Plan, ChecksBatchSizesAgainstTheRanks) {
  const std::string text = R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4})";
  EXPECT_EQ(Plan::parse(text, "d.json", {.ranks = 4}).batch.accumulation.value, 2);
  EXPECT_EQ(plan_error_of([&] { Plan::parse(text, "d.json", {.ranks = 3}); }),
            "d.json:1: train_batch_size: is 32, expected a multiple of "
            "train_micro_batch_size_per_gpu 4 times 3 ranks, which is 12; 24 or 36 would fit");
}

TEST(Plan, FlagsOfOptimizerAndScheduleOverride) {
  const Plan plan = Plan::parse(
      R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "gradient_clipping": "auto",
          "train_batch_size": 8})",
      "d.json", {.flags = {{"--lr", "0.5"}, {"--warmup", "30"}, {"--clip", "2"}}});
  EXPECT_EQ(plan.optimizer.lr.value, 0.5);
  EXPECT_EQ(plan.optimizer.lr.origin.text(), "flag");
  EXPECT_EQ(plan.scheduler.warmup_num_steps.value, 30);
  EXPECT_EQ(plan.clipping.value, 2);
  ASSERT_EQ(plan.warnings().size(), 1u);
  EXPECT_EQ(plan.warnings()[0].text(),
            "d.json:1: optimizer.params.lr: is 0.001, --lr makes it 0.5");
}

TEST(Plan, SaysWhichBatchItTakesWhenTheFileSaysNone) {
  const Plan plan = Plan::parse(R"({"bf16": {"enabled": true}})", "d.json", {.ranks = 2});
  EXPECT_EQ(plan.batch.global.value, 16);
  ASSERT_EQ(plan.warnings().size(), 1u);
  EXPECT_EQ(plan.warnings()[0].text(),
            "d.json: train_micro_batch_size_per_gpu: is not set, nor is train_batch_size: every "
            "rank takes 8, the Trainer's default");
}

TEST(Plan, FlagsWithoutAKeyGoStraightIntoIt) {
  const Plan plan = Plan::parse("distributed_type: FSDP\n", "a.yaml",
                                {.flags = {{"--lr", "0.5"},
                                           {"--adam_beta2", "0.95"},
                                           {"--schedule", "cosine"},
                                           {"--micro-batch", "3"},
                                           {"--wrap", "A,B"}}});
  EXPECT_EQ(plan.optimizer.lr.value, 0.5);
  EXPECT_EQ(plan.optimizer.lr.origin.text(), "flag");
  EXPECT_EQ(plan.optimizer.betas.value, (std::vector<double>{0.9, 0.95}));
  EXPECT_EQ(plan.scheduler.type.value, "cosine");
  EXPECT_EQ(plan.batch.micro.value, 3);
  EXPECT_EQ(plan.wrap.policy.value, "TRANSFORMER_BASED_WRAP");
  EXPECT_EQ(plan.wrap.classes.value, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(plan_error_of([] {
              Plan::parse("distributed_type: FSDP\n", "a.yaml", {.flags = {{"--lr", "fast"}}});
            }),
            "--lr: is 'fast', expected a number from 0");
}

TEST(Plan, BetasOfFlagsReplaceOneOfTwo) {
  const Plan plan = Plan::parse(
      R"({"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"betas": [0.8, 0.99]}}})",
      "d.json", {.flags = {{"--adam-beta1", "0.7"}}});
  EXPECT_EQ(plan.optimizer.betas.value, (std::vector<double>{0.7, 0.99}));
}

TEST(Plan, WithoutAFileIsFullShardOverTheModelsBlocks) {
  const Plan plan = Plan::from_words("", "");
  EXPECT_EQ(plan.sharding.strategy.value, "FULL_SHARD");
  EXPECT_EQ(plan.wrap.policy.value, "TRANSFORMER_BASED_WRAP");
  const Plan staged = Plan::from_words("", "", {.flags = {{"--zero-stage", "2"}}});
  EXPECT_EQ(staged.sharding.stage.value, 2);
  const Plan set = Plan::from_words("", "", {.overrides = {"gradient_clipping=0.5"}});
  EXPECT_EQ(set.sharding.stage.value, 3);
  EXPECT_EQ(set.clipping.value, 0.5);
}

TEST(Plan, OtherFlagsMustNotContradictTheFile) {
  EXPECT_EQ(
      plan_error_of([] {
        Plan::parse("{\"zero_optimization\": {\"stage\": 3},\n\"bf16\": {\"enabled\": true}}",
                    "d.json", {.flags = {{"--zero-stage", "2"}, {"--precision", "fp16"}}});
      }),
      "d.json:1: zero_optimization.stage: is 3, but --zero-stage is 2; leave out the flag, or "
      "change the key\n"
      "error: d.json:2: bf16.enabled: is true, but --precision is fp16; leave out the flag, or "
      "change the key");
  const Plan plan = Plan::parse("distributed_type: FSDP\n", "a.yaml",
                                {.flags = {{"--strategy", "no_shard"}, {"--precision", "bf16"}}});
  EXPECT_EQ(plan.sharding.strategy.value, "NO_SHARD");
  EXPECT_TRUE(plan.precision.bf16.value);
}

TEST(Plan, Fp8OfAnAccelerateFileIsBf16WithProductsInEightBits) {
  const auto parse = [](const std::string& more, std::optional<std::string> device = "cuda") {
    return Plan::parse("distributed_type: FSDP\nmixed_precision: fp8\n" + more, "a.yaml",
                       {.ranks = 2, .device = std::move(device)});
  };
  for (const auto& [more, format] : std::map<std::string, std::string>{
           {"", "HYBRID"},
           {"fp8_config:\n  backend: AO\n", "HYBRID"},
           {"fp8_config:\n  backend: TE\n  format: E4M3\n  margin: 0\n", "E4M3"}}) {
    const Plan plan = parse(more);
    EXPECT_TRUE(*plan.precision.fp8);
    EXPECT_TRUE(*plan.precision.bf16);
    EXPECT_EQ(*plan.precision.fp8_format, format) << more;
  }
  const std::string inner =
      "distributed_type: DEEPSPEED\nmixed_precision: fp8\ndeepspeed_config:\n  zero_stage: 2\n";
  const Plan deepspeed = Plan::parse(inner, "a.yaml", {.ranks = 2, .device = "cuda"});
  EXPECT_TRUE(*deepspeed.precision.fp8);
  EXPECT_TRUE(*deepspeed.precision.bf16);
  EXPECT_EQ(plan_error_of([&] { parse("", "cpu"); }),
            "a.yaml:2: mixed_precision: fp8 needs a GPU; use bf16");
}

TEST(Plan, WarnsOfFp16OnACpu) {
  const auto warnings = [](const std::string& device, const std::string& dtype) {
    return Plan::parse("distributed_type: FSDP\nmixed_precision: " + dtype + "\n", "a.yaml",
                       {.device = device})
        .warnings();
  };
  ASSERT_EQ(warnings("cpu", "fp16").size(), 1u);
  EXPECT_EQ(warnings("cpu", "fp16")[0].text(),
            "a.yaml:2: mixed_precision: fp16 is about 100 times slower than fp32 on a CPU; use "
            "bf16, or no mixed precision");
  EXPECT_TRUE(warnings("cpu", "bf16").empty());
  EXPECT_TRUE(warnings("cuda", "fp16").empty());
}

TEST(Plan, SuggestsWhatOtherProgramsCallIt) {
  const auto error = [](const std::string& text) {
    const std::string all = plan_error_of([&] { Plan::parse(text, "f"); });
    return all.substr(0, all.find("\nnote: --unknown-keys warn"));
  };
  EXPECT_EQ(error(R"({"learning_rate": 1})"),
            "f:1: learning_rate: unknown key; did you mean 'optimizer.params.lr'?");
  EXPECT_EQ(error(R"({"optimizer": {"type": "SGD", "params": {"learning_rate": 1}}})"),
            "f:1: optimizer.params.learning_rate: unknown key; did you mean "
            "'optimizer.params.lr'?");
  EXPECT_EQ(error(R"({"batch_size": 4, "bf16": {"enabled": true}})"),
            "f:1: batch_size: unknown key; did you mean 'train_micro_batch_size_per_gpu'?");
  EXPECT_EQ(error(R"({"max_steps": 4, "bf16": {"enabled": true}})"),
            "f:1: max_steps: unknown key; use train --steps");
  EXPECT_EQ(error("distributed_type: FSDP\nepochs: 3\nbatch_size: 4\n"),
            "f:2: epochs: unknown key; use train --epochs\n"
            "error: f:3: batch_size: unknown key; use train --micro-batch");
  EXPECT_EQ(plan_error_of([] { Plan::parse("{}", "f", {.overrides = {"learning_rate=1"}}); }),
            "--set: learning_rate: unknown key; did you mean 'optimizer.params.lr'?");
}

TEST(Plan, OverridesReplaceTheFilesValues) {
  const Plan plan = Plan::parse(R"({"zero_optimization": {"stage": 3}})", "d.json",
                                {.overrides = {"zero_optimization.stage=1", "optimizer.type=SGD",
                                               "optimizer.params.momentum=0.5"}});
  EXPECT_EQ(plan.sharding.stage.value, 1);
  EXPECT_EQ(plan.sharding.stage.origin.text(), "flag");
  EXPECT_EQ(plan.optimizer.momentum.value, 0.5);
  EXPECT_EQ(plan_error_of([] {
              Plan::parse("{}", "d.json", {.overrides = {"zero_optimization.stag=1", "x"}});
            }),
            "--set: zero_optimization.stag: unknown key; did you mean 'zero_optimization.stage'?\n"
            "error: --set: x: has no value; write --set key=value");
}

}  // namespace
}  // namespace fullshard::config
