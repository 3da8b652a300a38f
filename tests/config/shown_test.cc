// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fullshard/config/convert.h"
#include "fullshard/config/explain.h"
#include "fullshard/config/headline.h"
#include "fullshard/config/questionnaire.h"
#include "fullshard/config/schema/support_page.h"
#include "fullshard/config/schema/value_check.h"
#include "tests/config/fixtures.h"

namespace fullshard::config {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

json explained(std::string_view text, int64_t ranks) {
  const Plan plan = Plan::parse(text, "f", {.ranks = ranks});
  return json::parse(explain(plan, ranks).json());
}

TEST(Explain, GivesValueOriginAndEffectOfEveryKey) {
  const json keys = explained(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 2, "overlap_comm": true}})",
                              4);
  EXPECT_EQ(keys["train_batch_size"]["value"], 32);
  EXPECT_EQ(keys["train_batch_size"]["origin"], "f:1");
  EXPECT_EQ(keys["gradient_accumulation_steps"]["value"], 2);
  EXPECT_EQ(keys["gradient_accumulation_steps"]["origin"], "derived");
  EXPECT_EQ(keys["gradient_clipping"]["value"], 1.0);
  EXPECT_EQ(keys["gradient_clipping"]["origin"], "default");
  // Two 16-bit buckets of 5e8 elements, 4.5 times: what DeepSpeed's guide counts.
  EXPECT_THAT(std::string(keys["zero_optimization.overlap_comm"]["effect"]),
              HasSubstr("up to 9 GB"));
  // fp32: 4 + (4 + 8) / 4.
  EXPECT_THAT(std::string(keys["zero_optimization.stage"]["effect"]),
              HasSubstr("7 bytes per parameter and rank on 4 ranks, 16 unsharded"));
}

TEST(Explain, CountsWhatMastersShareOnGpus) {
  const auto effect = [](const std::string& bf16) {
    const json keys = explained(
        R"({"train_batch_size": 4, "bf16": )" + bf16 + R"(, "zero_optimization": {"stage": 2}})",
        4);
    return std::string(keys["zero_optimization.stage"]["effect"]);
  };
  // 2 + (4 + 12) / 4, or 2 + (4 + 10) / 4.
  EXPECT_THAT(effect(R"({"enabled": true})"),
              HasSubstr("6 bytes per parameter and rank on 4 ranks, 18 unsharded (on GPUs 5.5 and "
                        "16: bf16 values and fp32 masters share two bytes)"));
  EXPECT_THAT(effect(R"({"enabled": true, "bf16_master_weights_and_grads": true})"),
              Not(HasSubstr("GPUs")));
}

TEST(Explain, NamesAcceleratesOwnKeys) {
  const json keys = explained(
      "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_reshard_after_forward: "
      "SHARD_GRAD_OP\n",
      2);
  EXPECT_EQ(keys["fsdp_config.fsdp_sharding_strategy"]["value"], "SHARD_GRAD_OP");
  EXPECT_EQ(keys["fsdp_config.fsdp_sharding_strategy"]["origin"], "derived");
  EXPECT_EQ(keys["mixed_precision"]["value"], "bf16");
  EXPECT_EQ(keys["num_processes"]["origin"], "flag");
  EXPECT_EQ(keys["num_processes"]["value"], 2);
}

TEST(Convert, FsdpToDeepSpeedSaysWhatIsLost) {
  const Plan plan = Plan::parse(
      "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\nfsdp_config:\n"
      "  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_forward_prefetch: true\n");
  const Conversion result = convert_to_deepspeed(plan);
  const Plan back = Plan::parse(result.text, "back.json");
  EXPECT_EQ(back.sharding.stage.value, 2);
  EXPECT_TRUE(json::parse(result.text)["bf16"]["enabled"]);
  EXPECT_THAT(result.notes, Contains("fsdp_config.fsdp_forward_prefetch: has no DeepSpeed key"));
  EXPECT_THAT(result.notes, Contains("num_processes: is set on DeepSpeed's command line"));
}

TEST(Convert, DeepSpeedToAccelerateSaysWhatIsLost) {
  const Plan plan = Plan::parse(R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 3},
    "scheduler": {"type": "WarmupLR"}, "gradient_clipping": 0.5})");
  const Conversion result = convert_to_accelerate(plan);
  const Plan back = Plan::parse(result.text, "back.yaml");
  EXPECT_EQ(back.sharding.strategy.value, "FULL_SHARD");
  EXPECT_TRUE(back.precision.fp16.value);
  EXPECT_THAT(result.notes,
              Contains("gradient_clipping: has no Accelerate key; it is set in the program"));
  EXPECT_THAT(result.notes, Contains(HasSubstr("with warmup_type linear only")));
}

// Without it `accelerate launch` says: "You need to manually pass in `--num_processes`".
TEST(Convert, SaysHowManyRanksInAccelerateFiles) {
  const auto converted = [](const std::string& text) {
    return convert_to_accelerate(Plan::parse(text, "f"));
  };
  const Conversion unknown = converted(R"({"zero_optimization": {"stage": 3}})");
  EXPECT_THAT(unknown.text, HasSubstr("num_processes: 1\n"));
  EXPECT_THAT(unknown.notes, Contains("num_processes: the file does not say how many ranks; 1 is "
                                      "written: give --ranks"));
  // 32 = 2 times 4 times 4 ranks.
  EXPECT_THAT(converted(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2,
                            "gradient_accumulation_steps": 4})")
                  .text,
              HasSubstr("distributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_processes: 4\n"));
  // MULTI_GPU on one rank is refused by Accelerate.
  EXPECT_THAT(converted(R"({"train_batch_size": 8})").text, HasSubstr("distributed_type: 'NO'\n"));
}

TEST(Convert, HybridShardingIsMicsInDeepSpeed) {
  const Plan hybrid = Plan::parse(
      "distributed_type: FSDP\nnum_processes: 4\nnum_machines: 2\nmain_process_ip: a\n"
      "fsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n");
  const Conversion mics = convert_to_deepspeed(hybrid);
  const Plan back = Plan::parse(mics.text, "back.json", {.ranks = 4});
  EXPECT_EQ(back.sharding.stage.value, 3);
  EXPECT_EQ(back.sharding.factor.value, 2);
  EXPECT_THAT(mics.notes,
              Contains("fsdp_config.fsdp_sharding_strategy: becomes mics_shard_size, which "
                       "DeepSpeed 0.18 reads and 0.19.8 refuses"));
  const Conversion unknown = convert_to_deepspeed(Plan::parse(
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"));
  EXPECT_THAT(unknown.text, Not(HasSubstr("mics")));
  EXPECT_THAT(
      unknown.notes,
      Contains("fsdp_config.fsdp_sharding_strategy: mics_shard_size would need the ranks of "
               "one machine: give --ranks; as it is the shards span all ranks"));
}

TEST(Convert, MicsAreGroupsOfRanksInAccelerate) {
  Plan mics = Plan::parse(R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2},
                              "train_micro_batch_size_per_gpu": 2})");
  const Conversion without = convert_to_accelerate(mics);
  EXPECT_THAT(without.text, HasSubstr("fsdp_sharding_strategy: HYBRID_SHARD\n"));
  EXPECT_THAT(without.notes, Contains(HasSubstr("zero_optimization.mics_shard_size: becomes")));
  mics.launch.ranks = std::optional<int64_t>(4);
  const Conversion groups = convert_to_accelerate(mics);
  EXPECT_THAT(groups.notes, Not(Contains(HasSubstr("mics_shard_size"))));
  const Plan back = Plan::parse(groups.text, "back.yaml", {.ranks = 4});
  EXPECT_EQ(back.sharding.factor.value, 2);
  EXPECT_EQ(back.launch.ranks.value, 4);
  EXPECT_EQ(Plan::parse(convert_to_deepspeed(back).text).sharding.factor.value, 2);
}

// tools/check_conversions.py handed these files to Accelerate and DeepSpeed.
TEST(Convert, WritesWhatThePeersAccepted) {
  const std::string fixtures = FULLSHARD_SOURCE_DIR "/tests/fixtures/config/";
  const json record = json::parse(read_text(fixtures + "converted/accepted.json"));
  ASSERT_GE(record.size(), 2u);
  for (const auto& [version, files] : record.items()) {
    EXPECT_GE(files.size(), 10u) << version;
    for (const auto& [name, found] : files.items()) {
      const std::string stem = name.substr(0, name.find('.'));
      const std::string source =
          stem + (std::filesystem::exists(fixtures + "good/" + stem + ".json") ? ".json" : ".yaml");
      Plan plan = Plan::load(fixtures + "good/" + source, {.ranks = 4});
      plan.launch.ranks = std::optional<int64_t>(4);
      const Conversion now = version.starts_with("accelerate") ? convert_to_accelerate(plan)
                                                               : convert_to_deepspeed(plan);
      EXPECT_EQ(now.text, read_text(fixtures + "converted/" + name))
          << "write it anew: tools/check_conversions.py";
      // The only setting that the other program has dropped.
      const bool is_dropped =
          version == "deepspeed 0.19.8" && now.text.find("mics") != now.text.npos;
      EXPECT_EQ(found["outcome"] == "accepted", !is_dropped) << version << " " << found;
    }
  }
}

TEST(Headline, SaysWhatMatters) {
  EXPECT_EQ(headline(Plan::from_words("", ""), 2),
            "FULL_SHARD, fp32, AdamW with lr 5e-05 by WarmupDecayLR, 8 examples × 2 ranks = 16 per "
            "step, gradients clipped at 1");
  const Plan plan = Plan::parse(
      R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "gradient_clipping": 0,
          "train_batch_size": 48, "gradient_accumulation_steps": 3,
          "optimizer": {"type": "Lion", "params": {"lr": 0.001}},
          "scheduler": {"type": "WarmupLR"}})",
      "f", {.flags = {{"--sharding-factor", "2"}, {"--recompute", "true"}}, .ranks = 4});
  EXPECT_EQ(headline(plan, 4),
            "ZeRO stage 3 in groups of 2, bf16, Lion with lr 0.001 by WarmupLR, 4 examples × 3 "
            "micro-batches × 4 ranks = 48 per step, activations recomputed");
}

TEST(Convert, EveryGoodFileBecomesAGoodFile) {
  const FixtureFolder folder("good");
  for (const std::string& file : folder.files()) {
    const Plan plan = Plan::load(file);
    for (const Conversion& result : {convert_to_deepspeed(plan), convert_to_accelerate(plan)}) {
      const PlanReading reading = read_plan(result.text, file);
      EXPECT_TRUE(reading.problems.ok()) << reading.problems.text() << result.text;
    }
  }
}

TEST(Questionnaire, WritesDefaultsWhenNothingIsAnswered) {
  std::istringstream answers;
  std::ostringstream questions;
  const std::string text = ask_for_config(answers, questions, true);
  EXPECT_EQ(text, R"(compute_environment: LOCAL_MACHINE
num_processes: 2
num_machines: 1
use_cpu: false
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_offload_params: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_cpu_ram_efficient_loading: true
  fsdp_activation_checkpointing: false
mixed_precision: bf16
)");
  EXPECT_EQ(Plan::parse(text).launch.ranks.value, 2);
}

TEST(Questionnaire, ProposesWhatAMachineWithoutGpusCanDo) {
  std::istringstream answers;
  std::ostringstream questions;
  const std::string text = ask_for_config(answers, questions, false);
  EXPECT_THAT(text, HasSubstr("use_cpu: true\n"));
  EXPECT_THAT(text, HasSubstr("mixed_precision: 'no'\n"));
}

TEST(Questionnaire, AsksAgainAndWritesDeepSpeedKeys) {
  std::istringstream answers("4\n1\nno\ndeepspeed\n\n7\n3\ncpu\nnone\nyes\nno\n2\n0.5\nno\n");
  std::ostringstream questions;
  const std::string text = ask_for_config(answers, questions, true);
  EXPECT_THAT(questions.str(), HasSubstr("zero_stage: is 7, expected an integer from 0 to 3"));
  EXPECT_THAT(text, HasSubstr("mixed_precision: 'no'\n"));
  const Plan plan = Plan::parse(text);
  EXPECT_EQ(plan.sharding.stage.value, 3);
  EXPECT_EQ(plan.offload.optimizer.device.value, "cpu");
  EXPECT_EQ(plan.batch.accumulation.value, 2);
  EXPECT_EQ(plan.clipping.value, 0.5);
}

TEST(Questionnaire, FailsWhenTheLastAnswerIsNotAccepted) {
  std::istringstream answers("many\n");
  std::ostringstream questions;
  EXPECT_THROW(ask_for_config(answers, questions, true), Error);
}

TEST(SupportPage, IsWhatTheSchemaSays) {
  EXPECT_EQ(read_text(FULLSHARD_SOURCE_DIR "/docs/config_support.md"), support_page())
      << "write it anew: fullshard config support > docs/config_support.md";
}

TEST(Explanation, LeavesOutDefaultsOfOtherWaysToShard) {
  const std::string fsdp = explain(Plan::parse("distributed_type: FSDP\n")).text();
  for (const std::string absent :
       {"deepspeed_config.", "fsdp_config.xla", "parallelism_config.", "fp8_config."}) {
    EXPECT_THAT(fsdp, Not(HasSubstr(absent)));
  }
  EXPECT_THAT(fsdp, HasSubstr("fsdp_config.fsdp_sharding_strategy"));
  const Plan plan =
      Plan::parse("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 1\n");
  const std::string deepspeed = explain(plan, 2).text();
  EXPECT_THAT(deepspeed, Not(HasSubstr("fsdp_config.")));
  EXPECT_THAT(deepspeed, HasSubstr("bytes per parameter and rank"));
  EXPECT_THAT(explain(plan).json(), HasSubstr("fsdp_config.fsdp_version"));
}

TEST(Explanation, TellsOfOneStageOnly) {
  const std::string all = explain(Plan::parse("distributed_type: FSDP\n"), 2).json();
  const size_t first = all.find("bytes per parameter and rank");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(all.find("bytes per parameter and rank", first + 1), std::string::npos);
}

TEST(Explanation, AdvisesOnSubGroupsOfADisk) {
  const auto text = [](const std::string& device) {
    return explain(Plan::parse(R"({"zero_optimization": {"stage": 3, "sub_group_size": 1e9,
      "offload_optimizer": {"device": ")" +
                               device + R"(", "nvme_path": "/d"}}})"))
        .text();
  };
  EXPECT_THAT(text("nvme"), HasSubstr("make it smaller where a step runs out of memory, larger "
                                      "where the disk is slow"));
  EXPECT_THAT(text("cpu"), Not(HasSubstr("make it smaller")));
}

// Every default must be a value that its own key accepts.
TEST(Schema, AcceptsItsOwnDefaults) {
  for (const Family family : {Family::deepspeed, Family::accelerate, Family::trainer}) {
    const Settings settings(family);
    for (const SchemaKey* key : Schema::of(family).keys()) {
      EXPECT_FALSE(key->meaning.empty()) << key->path;
      const ConfigNode fallback = fallback_of(*key);
      if (fallback.kind == NodeKind::null) continue;
      EXPECT_TRUE(check_value(fallback, key->type, false).value) << key->path;
    }
  }
}

}  // namespace
}  // namespace fullshard::config
