#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "fullshard/config/convert.h"
#include "fullshard/config/explain.h"
#include "fullshard/config/questionnaire.h"
#include "fullshard/config/support_page.h"
#include "fullshard/config/value_check.h"
#include "tests/config/fixtures.h"

namespace fullshard {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

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
  EXPECT_THAT(result.notes, Contains("num_processes: is said on DeepSpeed's command line"));
}

TEST(Convert, DeepSpeedToAccelerateSaysWhatIsLost) {
  const Plan plan = Plan::parse(R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 3},
    "scheduler": {"type": "WarmupLR"}, "gradient_clipping": 0.5})");
  const Conversion result = convert_to_accelerate(plan);
  const Plan back = Plan::parse(result.text, "back.yaml");
  EXPECT_EQ(back.sharding.strategy.value, "FULL_SHARD");
  EXPECT_TRUE(back.precision.fp16.value);
  EXPECT_THAT(result.notes,
              Contains("gradient_clipping: has no Accelerate key; it is said in the program"));
  EXPECT_THAT(result.notes, Contains(HasSubstr("with warmup_type linear only")));
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
  const std::string text = ask_for_config(answers, questions);
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

TEST(Questionnaire, AsksAgainAndWritesDeepSpeedKeys) {
  std::istringstream answers("4\n1\nno\ndeepspeed\n\n7\n3\ncpu\nnone\nyes\nno\n2\n0.5\nno\n");
  std::ostringstream questions;
  const std::string text = ask_for_config(answers, questions);
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
  EXPECT_THROW(ask_for_config(answers, questions), Error);
}

TEST(SupportPage, IsWhatTheSchemaSays) {
  EXPECT_EQ(read_text(FULLSHARD_SOURCE_DIR "/docs/config_support.md"), support_page())
      << "write it anew: fullshard config support > docs/config_support.md";
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
}  // namespace fullshard
