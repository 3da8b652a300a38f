// SPDX-License-Identifier: Apache-2.0
// Files of other projects: computed values, comments and settings for other programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "fullshard/config/plan.h"
#include "tests/errors.h"
#include "tests/launch/shell.h"

namespace fullshard::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> foreign_warnings(const std::string& text) {
  std::vector<std::string> texts;
  const Plan plan = Plan::parse(text, "f");
  for (const Problem& warning : plan.warnings()) texts.push_back(warning.text());
  return texts;
}

std::string foreign_refusal(const std::string& text) {
  return fullshard::testing::message_of([&] { Plan::parse(text, "f"); });
}

// 0.9 * 2048 * 2048, as the guide's script computes it.
TEST(ComputedCounts, AreRoundedDownWithAWarning) {
  const std::string text = R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {
    "stage": 3, "stage3_prefetch_bucket_size": 3774873.6}})";
  EXPECT_EQ(Plan::parse(text).sharding.prefetch_bucket_size.value, 3774873);
  EXPECT_THAT(foreign_warnings(text),
              ElementsAre("f:2: zero_optimization.stage3_prefetch_bucket_size: is 3774873.6, "
                          "rounded down to 3774873"));
  const Plan plan = Plan::parse(
      R"({"train_batch_size": 8})", "f",
      {.overrides = {"zero_optimization.stage=3", "zero_optimization.sub_group_size=1000.5"}});
  EXPECT_EQ(plan.sharding.sub_group_size.value, 1000);
  EXPECT_THAT(plan.warnings().back().text(), HasSubstr("is 1000.5, rounded down to 1000"));
}

TEST(ComputedCounts, OfEverySizeAndStepCount) {
  for (const std::string name :
       {"reduce_bucket_size", "allgather_bucket_size", "sub_group_size",
        "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
        "stage3_max_live_parameters", "stage3_max_reuse_distance"}) {
    EXPECT_EQ(foreign_refusal(R"({"zero_optimization": {"stage": 3, ")" + name + R"(": 4096.4}})"),
              "no error")
        << name;
  }
  const Plan plan = Plan::parse(
      R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 12.5,
          "total_num_steps": 125.2}}})");
  EXPECT_EQ(plan.scheduler.warmup_num_steps.value, 12);
  EXPECT_EQ(plan.scheduler.total_num_steps.value, 125);
}

TEST(ComputedCounts, ArePlainWhereAFractionCannotBeMeant) {
  EXPECT_THAT(foreign_refusal(R"({"train_micro_batch_size_per_gpu": 2.5})"),
              HasSubstr("is 2.5, expected an integer"));
  EXPECT_THAT(foreign_refusal(R"({"zero_optimization": {"stage": 2.5}})"),
              HasSubstr("is 2.5, expected an integer"));
  EXPECT_THAT(foreign_refusal(R"({"zero_optimization": {"reduce_bucket_size": 0.5}})"),
              HasSubstr("is 0.5, expected an integer of at least 1"));
}

TEST(ForeignFiles, OfOneBitAdamSayThatNothingIsCorrected) {
  const auto file = [](const std::string& value) {
    return R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "OneBitAdam",
      "params": {"lr": 4e-4, "bias_correction": )" +
           value + "}}}";
  };
  EXPECT_THAT(foreign_warnings(file("false")), IsEmpty());
  EXPECT_THAT(foreign_warnings(file("true")),
              ElementsAre(HasSubstr("optimizer.params.bias_correction: without effect: OneBitAdam "
                                    "has no bias correction")));
}

TEST(ForeignFiles, MayAskForACompiler) {
  const std::string batch = R"({"train_micro_batch_size_per_gpu": 1, "compile": )";
  EXPECT_THAT(foreign_warnings(batch + R"({"disable": true, "backend": "inductor"}})"), IsEmpty());
  EXPECT_THAT(foreign_warnings(batch + R"({"disable": false, "backend": "inductor"}})"),
              ElementsAre("f:1: compile.disable: without effect: kernels are compiled beforehand"));
  EXPECT_THAT(foreign_refusal(batch + R"({"deepcompile": true}})"), HasSubstr("not supported"));
}

TEST(ForeignFiles, MayCarryComments) {
  EXPECT_THAT(foreign_warnings(R"({"_comment": "mine", "train_micro_batch_size_per_gpu": 1,
      "zero_optimization": {"stage": 1, "_why": {"a": 1}}})"),
              ElementsAre("f:1: _comment: begins with an underscore, as comments do; ignored",
                          "f:2: zero_optimization._why: begins with an underscore, as comments do; "
                          "ignored"));
  EXPECT_EQ(foreign_refusal("distributed_type: FSDP\n_comment: mine\n"), "no error");
}

TEST(ForeignFiles, ThatAreTunedAreToldOfTune) {
  EXPECT_THAT(foreign_warnings(R"({"train_micro_batch_size_per_gpu": 1, "autotuning": {
      "enabled": true, "fast": false, "arg_mappings": {"a": "--b"}, "metric": "latency"}})"),
              ElementsAre("f:2: autotuning.enabled: without effect: `fullshard tune`, or `train "
                          "--auto`, searches for the fastest settings that fit"));
}

TEST(ForeignFiles, WithUnknownKeysSayHowTheyPass) {
  const std::string text = R"({"train_micro_batch_size_per_gpu": 1, "made_up": 3})";
  EXPECT_EQ(foreign_refusal(text),
            "f:1: made_up: unknown key\n"
            "note: --unknown-keys warn lets unknown keys pass, with a warning each");
  EXPECT_EQ(Plan::parse(text, "f", {.allow_unknown = true}).warnings().at(0).text(),
            "f:1: made_up: unknown key, ignored");
  EXPECT_THAT(foreign_refusal(R"({"zero_optimization": {"stage": 7}})"),
              Not(HasSubstr("--unknown-keys")));
}

TEST(ForeignFiles, MayBeToldToLeaveAGuidesKeyOut) {
  EXPECT_THAT(foreign_refusal(R"({"zero_optimization": {"stage": 3},
      "is_deepspeed_zero3_enabled": true})"),
              HasSubstr("is_deepspeed_zero3_enabled: unknown key; leave it out: "
                        "zero_optimization.stage decides it"));
}

TEST(ConfigFolders, StandForTheOnlyConfigurationInThem) {
  const launch::TemporaryFolder folder;
  const auto refusal = [&] {
    return fullshard::testing::message_of([&] { Plan::load(folder.path()); });
  };
  EXPECT_EQ(refusal(),
            folder.path() + ": is a folder, expected a configuration file; name the file");
  folder.write("notes.txt", "nothing");
  folder.write("ds.json", R"({"zero_optimization": {"stage": 2}})");
  const Plan plan = Plan::load(folder.path());
  EXPECT_EQ(plan.sharding.stage.value, 2);
  EXPECT_EQ(plan.sharding.stage.origin.file, folder / "ds.json");
  folder.write("fsdp.yaml", "distributed_type: FSDP\n");
  EXPECT_EQ(refusal(), folder.path() +
                           ": is a folder, expected a configuration file; name the file, one of "
                           "ds.json, fsdp.yaml");
}

TEST(ConfigFolders, OfTheTrainersWordsToo) {
  const launch::TemporaryFolder folder;
  folder.write("fsdp_config.json", R"({"min_num_params": 2000})");
  EXPECT_EQ(Plan::from_words("full_shard", folder.path() + "/").wrap.min_num_params.value, 2000);
  EXPECT_THAT(fullshard::testing::message_of(
                  [] { Plan::from_words("full shard", "path/to/fsdp_config/"); }),
              HasSubstr("path/to/fsdp_config/: cannot be read (No such file or directory); name "
                        "the Trainer's fsdp_config, a JSON"));
}

}  // namespace
}  // namespace fullshard::config
