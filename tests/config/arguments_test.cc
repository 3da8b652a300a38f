// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "fullshard/config/plan.h"
#include "tests/config/fixtures.h"

namespace fullshard::config {
namespace {

using ::testing::ElementsAre;

// A main()'s arguments, which from_arguments() may change.
class Arguments {
 public:
  explicit Arguments(std::vector<std::string> words) : words_(std::move(words)) {
    words_.insert(words_.begin(), "program");
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
    count = static_cast<int>(words_.size());
  }
  char** data() { return pointers_.data(); }
  std::vector<std::string> left() const {
    return {pointers_.begin() + 1, pointers_.begin() + count};
  }

  int count = 0;

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

TEST(Arguments, TakeOursAndLeaveTheProgramsOwn) {
  const FixtureFolder folder("good");
  Arguments arguments({"--lr", "3", "--deepspeed", "ds_zero1.json",
                       "--set=zero_optimization.stage=2", "input", "--", "--config"});
  const Plan plan = Plan::from_arguments(arguments.count, arguments.data());
  EXPECT_EQ(plan.sharding.stage.value, 2);
  EXPECT_THAT(arguments.left(), ElementsAre("--lr", "3", "input", "--", "--config"));
}

TEST(Arguments, ReadTheTrainersWordsAndFile) {
  const FixtureFolder folder("good");
  Arguments arguments({"--fsdp", "shard_grad_op offload", "--fsdp-config", "tr_bare_v1.json"});
  const Plan plan = Plan::from_arguments(arguments.count, arguments.data());
  EXPECT_EQ(plan.sharding.strategy.value, "SHARD_GRAD_OP");
  EXPECT_TRUE(plan.offload.everything.value);
  EXPECT_THAT(plan.wrap.classes.value, ElementsAre("LlamaDecoderLayer"));
  EXPECT_EQ(plan.sharding.backward_prefetch.value, "BACKWARD_POST");
  EXPECT_TRUE(arguments.left().empty());
}

TEST(Arguments, TakeFsdpWithoutWords) {
  for (const std::vector<std::string>& given :
       {std::vector<std::string>{"--fsdp"}, {"--fsdp", "--lr", "1"}, {"--fsdp=true"}}) {
    Arguments arguments(given);
    const Plan plan = Plan::from_arguments(arguments.count, arguments.data());
    EXPECT_EQ(plan.sharding.strategy.value, "FULL_SHARD");
  }
}

TEST(Arguments, LetUnknownKeysPassWhereAskedTo) {
  const auto plan_of = [](std::vector<std::string> given) {
    Arguments arguments(std::move(given));
    return Plan::from_arguments(arguments.count, arguments.data());
  };
  EXPECT_EQ(
      plan_of({"--deepspeed", "{\"train_batch_size\": 8, \"made_up\": 1}", "--unknown_keys=warn"})
          .warnings()
          .at(0)
          .message,
      "unknown key, ignored");
  EXPECT_THROW(plan_of({"--deepspeed", "{\"train_batch_size\": 8, \"made_up\": 1}",
                        "--unknown-keys", "error"}),
               Error);
  EXPECT_THROW(plan_of({"--unknown-keys", "perhaps"}), Error);
}

TEST(Arguments, OfTwoKindsDisagree) {
  Arguments arguments({"--config", "a.yaml", "--deepspeed", "b.json"});
  try {
    Plan::from_arguments(arguments.count, arguments.data());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--deepspeed: given together with --config; keep one of them");
  }
}

// What `accelerate launch --no_python` exports for a version 1 FSDP file.
TEST(Arguments, WithoutAnyTheEnvironmentOfAccelerateCounts) {
  const std::vector<std::pair<const char*, const char*>> variables = {
      {"ACCELERATE_USE_FSDP", "true"},
      {"FSDP_VERSION", "1"},
      {"FSDP_SHARDING_STRATEGY", "SHARD_GRAD_OP"},
      {"FSDP_RESHARD_AFTER_FORWARD", "true"},
      {"FSDP_MIN_NUM_PARAMS", "100000000"},
      {"FSDP_OFFLOAD_PARAMS", "false"},
      {"ACCELERATE_MIXED_PRECISION", "bf16"}};
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  Arguments arguments({"--lr", "3"});
  const Plan plan = Plan::from_arguments(arguments.count, arguments.data());
  for (const auto& [name, value] : variables) unsetenv(name);
  EXPECT_EQ(plan.sharding.strategy.value, "SHARD_GRAD_OP");
  EXPECT_EQ(plan.sharding.strategy.origin.text(), "environment");
  EXPECT_TRUE(plan.precision.bf16.value);
  EXPECT_TRUE(plan.warnings().empty());
}

}  // namespace
}  // namespace fullshard::config
