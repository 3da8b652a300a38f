// SPDX-License-Identifier: Apache-2.0
// Flags combined with a file: those of optimizer and schedule override it with a warning, any other
// that contradicts an explicit value is an error, and all of them are listed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "fullshard/config/plan.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::message_of;
using testing::TemporaryFolder;

constexpr const char* kHint = "; leave out the flag, or change the key";

PlanReading read(const std::string& text, std::vector<FlagValue> flags,
                 std::optional<int64_t> ranks = {}) {
  return read_plan(text, "f", {.flags = std::move(flags), .ranks = ranks});
}
std::vector<std::string> texts(const std::vector<Problem>& problems) {
  std::vector<std::string> lines;
  for (const Problem& problem : problems) lines.push_back(problem.text());
  return lines;
}
std::string fsdp(const std::string& keys) {
  return "distributed_type: FSDP\nfsdp_config:\n  " + keys + "\n";
}

struct Case {
  std::string file;
  FlagValue flag;
  std::string said;  // "f:3: key: is X"; empty: the flag is taken
};

// Every flag other than those of optimizer and schedule, with every key for the same setting.
const std::vector<Case> kCases = {
    {R"({"zero_optimization": {"stage": 3}})",
     {"--strategy", "NO_SHARD"},
     "f:1: zero_optimization.stage: is 3"},
    {R"({"zero_optimization": {"stage": 2}})",
     {"--strategy", "full shard"},
     "f:1: zero_optimization.stage: is 2"},
    {R"({"zero_optimization": {"stage": 3}})",
     {"--strategy", "HYBRID_SHARD"},
     "f:1: zero_optimization.stage: is 3"},
    {R"({"zero_optimization": {"stage": 3}})",
     {"--zero-stage", "1"},
     "f:1: zero_optimization.stage: is 3"},
    {R"({"zero_optimization": {"stage": 0}})",
     {"--sharding-factor", "2"},
     "f:1: zero_optimization.stage: is 0"},
    {R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4}})",
     {"--sharding-factor", "2"},
     "f:1: zero_optimization.mics_shard_size: is 4"},
    {R"({"zero_optimization": {"stage": 3, "mics_shard_size": -1}})",
     {"--sharding-factor", "2"},
     "f:1: zero_optimization.mics_shard_size: is -1"},
    {R"({"bf16": {"enabled": true}})", {"--precision", "fp16"}, "f:1: bf16.enabled: is true"},
    {R"({"train_micro_batch_size_per_gpu": 2})",
     {"--micro-batch", "4"},
     "f:1: train_micro_batch_size_per_gpu: is 2"},
    {R"({"gradient_accumulation_steps": 2})",
     {"--accumulate", "4"},
     "f:1: gradient_accumulation_steps: is 2"},
    {R"({"gradient_clipping": 0.5})", {"--clip", "1"}, "f:1: gradient_clipping: is 0.5"},

    {fsdp("fsdp_sharding_strategy: SHARD_GRAD_OP"),
     {"--strategy", "FULL_SHARD"},
     "f:3: fsdp_config.fsdp_sharding_strategy: is SHARD_GRAD_OP"},
    {fsdp("fsdp_reshard_after_forward: SHARD_GRAD_OP"),
     {"--strategy", "FULL_SHARD"},
     "f:3: fsdp_config.fsdp_reshard_after_forward: is SHARD_GRAD_OP"},
    {fsdp("fsdp_version: 2\n  fsdp_reshard_after_forward: false"),
     {"--strategy", "FULL_SHARD"},
     "f:4: fsdp_config.fsdp_reshard_after_forward: is false"},
    {fsdp("fsdp_version: 2\n  fsdp_reshard_after_forward: true"),
     {"--strategy", "NO_SHARD"},
     "f:4: fsdp_config.fsdp_reshard_after_forward: is true"},
    {fsdp("fsdp_sharding_strategy: FULL_SHARD"),
     {"--zero-stage", "2"},
     "f:3: fsdp_config.fsdp_sharding_strategy: is FULL_SHARD"},
    {fsdp("fsdp_version: 2\n  fsdp_reshard_after_forward: true"),
     {"--zero-stage", "1"},
     "f:4: fsdp_config.fsdp_reshard_after_forward: is true"},
    {fsdp("fsdp_sharding_strategy: NO_SHARD"),
     {"--sharding-factor", "2"},
     "f:3: fsdp_config.fsdp_sharding_strategy: is NO_SHARD"},
    {fsdp("fsdp_auto_wrap_policy: SIZE_BASED_WRAP"),
     {"--wrap", "Block"},
     "f:3: fsdp_config.fsdp_auto_wrap_policy: is SIZE_BASED_WRAP"},
    {fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"),
     {"--wrap", "none"},
     "f:3: fsdp_config.fsdp_auto_wrap_policy: is TRANSFORMER_BASED_WRAP"},
    {fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
          "  fsdp_transformer_layer_cls_to_wrap: A,B"),
     {"--wrap", "Block"},
     "f:4: fsdp_config.fsdp_transformer_layer_cls_to_wrap: is A,B"},
    {fsdp("fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 100"),
     {"--wrap", "200"},
     "f:4: fsdp_config.fsdp_min_num_params: is 100"},
    {fsdp("fsdp_activation_checkpointing: false"),
     {"--recompute", "true"},
     "f:3: fsdp_config.fsdp_activation_checkpointing: is false"},
    {"distributed_type: FSDP\nmixed_precision: bf16\n",
     {"--precision", "no"},
     "f:2: mixed_precision: is bf16"},
    {"distributed_type: MULTI_GPU\n",
     {"--strategy", "FULL_SHARD"},
     "f:1: distributed_type: is MULTI_GPU"},
    {"distributed_type: 'NO'\n", {"--zero-stage", "3"}, "f:1: distributed_type: is NO"},
    {"distributed_type: MULTI_CPU\n",
     {"--sharding-factor", "2"},
     "f:1: distributed_type: is MULTI_CPU"},

    {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n",
     {"--strategy", "NO_SHARD"},
     "f:3: deepspeed_config.zero_stage: is 2"},
    {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n",
     {"--zero-stage", "3"},
     "f:3: deepspeed_config.zero_stage: is 2"},
    {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  gradient_accumulation_steps: 2\n",
     {"--accumulate", "3"},
     "f:3: deepspeed_config.gradient_accumulation_steps: is 2"},
    {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  gradient_clipping: 2\n",
     {"--clip", "3"},
     "f:3: deepspeed_config.gradient_clipping: is 2"},
    {"distributed_type: DEEPSPEED\nmixed_precision: fp16\n",
     {"--precision", "bf16"},
     "f:2: mixed_precision: is fp16"},

    {R"({"fsdp": "full_shard"})", {"--strategy", "NO_SHARD"}, "f:1: fsdp: is full_shard"},
    {R"({"fsdp": "shard_grad_op"})", {"--zero-stage", "3"}, "f:1: fsdp: is shard_grad_op"},
    {R"({"fsdp": true, "fsdp_config": {"auto_wrap_policy": "NO_WRAP"}})",
     {"--wrap", "auto"},
     "f:1: fsdp_config.auto_wrap_policy: is NO_WRAP"},
    {R"({"fsdp": true, "fsdp_config": {"activation_checkpointing": false}})",
     {"--gradient-checkpointing", "true"},
     "f:1: fsdp_config.activation_checkpointing: is false"},

    // The same value spelled differently, or a setting that the file leaves open.
    {R"({"zero_optimization": {"stage": 3}})", {"--strategy", "FULL_SHARD"}, ""},
    {R"({"zero_optimization": {"stage": 2}})", {"--strategy", "SHARD_GRAD_OP"}, ""},
    {fsdp("fsdp_sharding_strategy: NO_SHARD"), {"--zero-stage", "0"}, ""},
    {fsdp("fsdp_sharding_strategy: FULL_SHARD"), {"--sharding-factor", "2"}, ""},
    {fsdp("fsdp_sharding_strategy: HYBRID_SHARD"), {"--sharding-factor", "2"}, ""},
    {fsdp("fsdp_version: 2\n  fsdp_reshard_after_forward: false"), {"--zero-stage", "2"}, ""},
    {fsdp("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"), {"--wrap", "auto"}, ""},
    {fsdp("fsdp_auto_wrap_policy: SIZE_BASED_WRAP"), {"--wrap", "200"}, ""},
    {R"({"gradient_clipping": "auto"})", {"--clip", "0.25"}, ""},
    {R"({"train_micro_batch_size_per_gpu": "auto"})", {"--micro-batch", "3"}, ""},
};

TEST(Flags, ContradictWhatAFileSays) {
  for (const Case& item : kCases) {
    const PlanReading reading = read(item.file, {item.flag}, 4);
    const std::vector<std::string> errors = texts(reading.problems.errors);
    const std::string where = item.file + " " + item.flag.flag + " " + item.flag.value;
    if (item.said.empty()) {
      EXPECT_THAT(errors, IsEmpty()) << where;
    } else {
      EXPECT_THAT(errors, ElementsAre(item.said + ", but " + item.flag.flag + " is " +
                                      item.flag.value + kHint))
          << where;
    }
  }
}

TEST(Flags, ThatContradictAreListedAtOnce) {
  const PlanReading reading = read(
      "distributed_type: FSDP\nmixed_precision: fp16\nfsdp_config:\n"
      "  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_auto_wrap_policy: NO_WRAP\n"
      "  fsdp_activation_checkpointing: false\n",
      {{"--zero-stage", "1"}, {"--wrap", "A"}, {"--precision", "bf16"}, {"--recompute", "true"}});
  EXPECT_THAT(
      texts(reading.problems.errors),
      ElementsAre(std::string("f:2: mixed_precision: is fp16, but --precision is bf16") + kHint,
                  std::string("f:4: fsdp_config.fsdp_sharding_strategy: is FULL_SHARD, but "
                              "--zero-stage is 1") +
                      kHint,
                  std::string("f:5: fsdp_config.fsdp_auto_wrap_policy: is NO_WRAP, but --wrap is "
                              "A") +
                      kHint,
                  std::string("f:6: fsdp_config.fsdp_activation_checkpointing: is false, but "
                              "--recompute is true") +
                      kHint));
}

TEST(Flags, ContradictTheFileThatAFileNames) {
  const TemporaryFolder folder;
  const std::string file = folder.file("ds.json");
  std::ofstream(file) << "{\"zero_optimization\": {\"stage\": 3},\n\"bf16\": {\"enabled\": true},\n"
                         "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}}}";
  const std::string text =
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: " + file + "\n";
  EXPECT_THAT(
      texts(read(text, {{"--strategy", "NO_SHARD"}, {"--precision", "no"}}).problems.errors),
      ElementsAre(file + ":1: zero_optimization.stage: is 3, but --strategy is NO_SHARD" + kHint,
                  file + ":2: bf16.enabled: is true, but --precision is no" + kHint));
  const PlanReading taken = read(text, {{"--clip", "0.5"}, {"--lr", "0.5"}}, 2);
  EXPECT_THAT(texts(taken.problems.errors), IsEmpty());
  EXPECT_EQ(taken.plan.clipping.value, 0.5);
  EXPECT_EQ(taken.plan.optimizer.lr.value, 0.5);
  EXPECT_THAT(texts(taken.problems.warnings),
              Contains(file + ":3: optimizer.params.lr: is 0.001, --lr makes it 0.5"));
}

TEST(Flags, ContradictEachOther) {
  const auto error = [](std::vector<FlagValue> flags, std::vector<std::string> overrides = {}) {
    return message_of([&] { Plan::from_words("", "", {.overrides = overrides, .flags = flags}); });
  };
  EXPECT_EQ(error({{"--strategy", "FULL_SHARD"}, {"--zero-stage", "2"}}),
            "--strategy: zero_optimization.stage: is 3, but --zero-stage is 2; keep one of them");
  EXPECT_EQ(error({{"--zero-stage", "2"}}, {"zero_optimization.stage=1"}),
            "--zero-stage: zero_optimization.stage: is 2, but --set is 1; keep one of them");
  EXPECT_EQ(error({{"--wrap", "A"}}, {"fsdp_config.fsdp_auto_wrap_policy=NO_WRAP"}),
            "--set: fsdp_config.fsdp_auto_wrap_policy: is NO_WRAP, but --wrap is A; keep one of "
            "them");
  EXPECT_EQ(message_of([] {
              Plan::from_words("full_shard auto_wrap", "", {.flags = {{"--strategy", "NO_SHARD"}}});
            }),
            "--fsdp: is full_shard auto_wrap, but --strategy is NO_SHARD; keep one of them");
  EXPECT_EQ(error({{"--strategy", "NO_SHARD"}, {"--sharding-factor", "2"}}),
            "--strategy: fsdp_config.fsdp_sharding_strategy: is NO_SHARD, but --sharding-factor is "
            "2; keep one of them");
}

TEST(Flags, ThatOverrideAreShown) {
  const PlanReading reading = read_plan(
      "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.8, 0.99]}},\n"
      "\"scheduler\": {\"type\": \"WarmupLR\"}, \"train_batch_size\": 8,\n"
      "\"zero_optimization\": {\"stage\": 3}}",
      "f",
      {.overrides = {"zero_optimization.stage=1"},
       .flags = {{"--adam-beta1", "0.7"}, {"--adam-beta2", "0.9"}, {"--schedule", "cosine"}}});
  EXPECT_THAT(texts(reading.problems.errors), IsEmpty());
  EXPECT_THAT(reading.plan.optimizer.betas.value, ElementsAre(0.7, 0.9));
  EXPECT_THAT(texts(reading.problems.warnings),
              ElementsAre("f:1: optimizer.params.betas: is [0.8, 0.99], --adam-beta1 makes it "
                          "[0.7, 0.99]",
                          "f:1: optimizer.params.betas: is [0.7, 0.99], --adam-beta2 makes it "
                          "[0.7, 0.9]",
                          "f:2: scheduler.type: is WarmupLR, --schedule makes it cosine",
                          "f:3: zero_optimization.stage: is 3, --set makes it 1"));
}

TEST(Flags, WinOverTheEnvironment) {
  setenv("ACCELERATE_USE_FSDP", "true", 1);
  setenv("FSDP_SHARDING_STRATEGY", "FULL_SHARD", 1);
  const Plan plan = Plan::from_words("", "", {.flags = {{"--strategy", "NO_SHARD"}}});
  unsetenv("ACCELERATE_USE_FSDP");
  unsetenv("FSDP_SHARDING_STRATEGY");
  EXPECT_EQ(plan.sharding.strategy.value, "NO_SHARD");
}

TEST(Flags, WithWrongValuesSayWhatIsExpected) {
  const auto error = [](FlagValue flag) {
    return message_of([&] { Plan::from_words("full_shard", "", {.flags = {flag}}); });
  };
  EXPECT_EQ(error({"--zero-stage", "7"}),
            "--zero-stage: is '7', expected a whole number from 0 to 3");
  EXPECT_EQ(error({"--sharding-factor", "0"}),
            "--sharding-factor: is '0', expected a whole number from 1");
  EXPECT_EQ(error({"--strategy", "FULLSHARD"}),
            "--strategy: is \"FULLSHARD\", expected one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, "
            "HYBRID_SHARD, HYBRID_SHARD_ZERO2; did you mean 'FULL_SHARD'?");
  EXPECT_EQ(error({"--precision", "bf61"}),
            "--precision: is \"bf61\", expected one of no, fp16, bf16, fp8; did you mean 'bf16'?");
  EXPECT_EQ(error({"--schedule", "cosin"}),
            "--schedule: is \"cosin\", expected one of WarmupLR, WarmupDecayLR, WarmupCosineLR, "
            "OneCycle, LRRangeTest, constant, constant_with_warmup, linear, cosine, "
            "cosine_with_restarts, polynomial, inverse_sqrt, cosine_with_min_lr, "
            "cosine_warmup_with_min_lr, warmup_stable_decay; did you mean 'cosine'?");
}

// M3's flag, in every kind of file that may stand beside it.
TEST(ShardingFactor, WorksBesideEveryKindOfFile) {
  const std::vector<std::string> files = {
      "distributed_type: FSDP\n",
      fsdp("fsdp_version: 1\n  fsdp_sharding_strategy: FULL_SHARD"),
      fsdp("fsdp_version: 2\n  fsdp_reshard_after_forward: true"),
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n",
      R"({"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1})",
      R"({"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1})",
      R"({"train_micro_batch_size_per_gpu": 1})",
      R"({"fsdp": "full_shard auto_wrap"})",
      R"({"fsdp": true, "fsdp_config": {"version": 1}})",
  };
  for (const std::string& file : files) {
    for (const std::string factor : {"1", "2", "4"}) {
      const PlanReading reading = read(file, {{"--sharding-factor", factor}}, 4);
      EXPECT_THAT(texts(reading.problems.errors), IsEmpty()) << file;
      EXPECT_EQ(reading.plan.sharding.factor.value, std::stoi(factor)) << file;
      EXPECT_EQ(reading.plan.sharding.factor.origin.text(), "flag") << file;
    }
    EXPECT_THAT(texts(read(file, {{"--sharding-factor", "3"}}, 4).problems.errors),
                ElementsAre("--sharding-factor: is 3, expected a divisor of 4 ranks: 1, 2, 4"))
        << file;
  }
  for (const auto& extra : {FlagValue{"--lr", "1"}, FlagValue{"--zero-stage", "1"}}) {
    const Plan plan =
        Plan::from_words("", "", {.flags = {extra, {"--sharding-factor", "2"}}, .ranks = 4});
    EXPECT_EQ(plan.sharding.factor.value, 2);
  }
}

TEST(ShardingFactor, MeansFullShardingWhereADeepSpeedFileNamesNoStage) {
  const PlanReading reading =
      read(R"({"train_micro_batch_size_per_gpu": 1})", {{"--sharding-factor", "2"}}, 4);
  EXPECT_EQ(reading.plan.sharding.stage.value, 3);
  EXPECT_EQ(reading.plan.sharding.stage.origin.text(), "derived");
}

TEST(Strategies, OfFlagsDecideWhereADeepSpeedFileNamesNoStage) {
  const PlanReading reading =
      read(R"({"train_micro_batch_size_per_gpu": 1})", {{"--strategy", "shard_grad_op"}}, 4);
  EXPECT_THAT(texts(reading.problems.errors), IsEmpty());
  EXPECT_EQ(reading.plan.sharding.stage.value, std::nullopt);
  EXPECT_EQ(reading.plan.sharding.strategy.value, "SHARD_GRAD_OP");
}

// As Hugging Face's guides write it.
TEST(FsdpWords, MayBeWrittenWithSpaces) {
  const Plan plan = Plan::from_words("full shard auto wrap", "");
  EXPECT_EQ(plan.sharding.strategy.value, "FULL_SHARD");
  EXPECT_THAT(texts(plan.warnings()),
              ElementsAre("--fsdp: fsdp: the Trainer does not read 'full shard' with a space; "
                          "honoured as meant; write full_shard",
                          "--fsdp: fsdp: the Trainer does not read 'auto wrap' with a space; "
                          "honoured as meant; write auto_wrap"));
  EXPECT_EQ(Plan::from_words("shard grad op", "").sharding.strategy.value, "SHARD_GRAD_OP");
  EXPECT_EQ(Plan::from_words("hybrid shard zero2 auto_wrap", "").sharding.strategy.value,
            "HYBRID_SHARD_ZERO2");
  EXPECT_EQ(message_of([] { Plan::from_words("full shart", ""); }),
            "--fsdp: fsdp: unknown word 'full', expected full_shard, shard_grad_op, no_shard, "
            "hybrid_shard, hybrid_shard_zero2, offload, auto_wrap\n"
            "error: --fsdp: fsdp: unknown word 'shart', expected full_shard, shard_grad_op, "
            "no_shard, hybrid_shard, hybrid_shard_zero2, offload, auto_wrap");
}

}  // namespace
}  // namespace fullshard::config
