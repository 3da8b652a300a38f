// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/effective_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace fullshard::config {
namespace {

using Rows = std::map<std::string, std::pair<std::string, std::string>>;

Rows rows_of(const Plan& plan, const RunOptions& options = {}) {
  Rows rows;
  for (const auto& row :
       effective_settings(plan, options, 2, [](std::string_view flag) { return flag == "seed"; })) {
    rows[row.flag] = {row.value, row.origin};
  }
  return rows;
}

TEST(EffectiveSettings, SayWhatHoldsWhereNobodySaidAnything) {
  const Rows rows = rows_of(Plan::parse("{}", "ds.json", {.ranks = 2}));
  EXPECT_EQ(rows.at("--optimizer"), (Rows::mapped_type{"\"AdamW\"", "default"}));
  EXPECT_EQ(rows.at("--lr"), (Rows::mapped_type{"5e-05", "default"}));
  EXPECT_EQ(rows.at("--offload"), (Rows::mapped_type{"[]", "default"}));
  EXPECT_EQ(rows.at("--seed"), (Rows::mapped_type{"42", "flag"}));
  EXPECT_EQ(rows.at("--order"), (Rows::mapped_type{"\"shuffled\"", "default"}));
  EXPECT_FALSE(rows.contains("--lora-rank"));
  EXPECT_FALSE(rows.contains("--offload-ratio"));  // nothing leaves the device
}

TEST(EffectiveSettings, NameTheFileOrFlagThatSaidIt) {
  const Plan plan = Plan::parse(
      R"({"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2,
"bf16": {"enabled": true}, "dataloader_drop_last": true,
"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
 "offload_param": {"device": "nvme", "nvme_path": "/d"}}})",
      "ds.json", {.flags = {{"--lr", "0.25"}, {"--wrap", "20000"}, {"--clip", "0.5"}}, .ranks = 2});
  const Rows rows = rows_of(plan);
  EXPECT_EQ(rows.at("--zero-stage"), (Rows::mapped_type{"3", "ds.json:3"}));
  EXPECT_FALSE(rows.contains("--strategy"));
  EXPECT_EQ(rows.at("--precision"), (Rows::mapped_type{"\"bf16\"", "ds.json:2"}));
  EXPECT_EQ(rows.at("--micro-batch"), (Rows::mapped_type{"3", "ds.json:1"}));
  EXPECT_EQ(rows.at("--accumulate"), (Rows::mapped_type{"2", "ds.json:1"}));
  EXPECT_EQ(rows.at("--drop-last"), (Rows::mapped_type{"true", "ds.json:2"}));
  EXPECT_EQ(rows.at("--offload"),
            (Rows::mapped_type{R"(["optimizer:cpu","param:/d"])", "ds.json:3"}));
  EXPECT_EQ(rows.at("--offload-ratio").first, "1.0");
  EXPECT_EQ(rows.at("--lr"), (Rows::mapped_type{"0.25", "flag"}));
  EXPECT_EQ(rows.at("--clip"), (Rows::mapped_type{"0.5", "flag"}));
  EXPECT_EQ(rows.at("--wrap"), (Rows::mapped_type{"20000", "flag"}));
}

TEST(EffectiveSettings, LeaveOutWhatTheOptimizerDoesNotTake) {
  const auto rows_with = [](const char* optimizer) {
    return rows_of(Plan::parse("{}", "ds.json", {.flags = {{"--optimizer", optimizer}}}));
  };
  for (const char* both : {"AdamW", "Lamb"}) {
    EXPECT_TRUE(rows_with(both).contains("--adam-beta2")) << both;
    EXPECT_TRUE(rows_with(both).contains("--adam-epsilon")) << both;
  }
  EXPECT_TRUE(rows_with("Lion").contains("--adam-beta1"));
  EXPECT_FALSE(rows_with("Lion").contains("--adam-epsilon"));
  EXPECT_FALSE(rows_with("Adagrad").contains("--adam-beta1"));
  EXPECT_EQ(rows_with("Adagrad").at("--adam-epsilon").first, "1e-10");
  EXPECT_FALSE(rows_with("SGD").contains("--adam-beta1"));
  EXPECT_FALSE(rows_with("SGD").contains("--adam-epsilon"));
}

TEST(EffectiveSettings, StandAmongTheKeysOfAConfiguration) {
  const auto told = nlohmann::json::parse(with_settings(
      R"({"a.b": {"value": 1, "origin": "f:1", "effect": "x"}, "--lr": {"value": 2, "effect": "rate"}})",
      {{"--lr", "0.5", "flag"}, {"--data", "\"\\u00e9\"", "default"}}));
  EXPECT_EQ(told["a.b"]["value"], 1);
  EXPECT_EQ(told["--lr"], (nlohmann::json{{"value", 0.5}, {"origin", "flag"}, {"effect", "rate"}}));
  EXPECT_EQ(told["--data"]["effect"], "");
}

TEST(EffectiveSettings, EachSayWhatTheyDo) {
  RunOptions options;
  options.lora.rank = 4;
  for (const char* const file :
       {R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})",
        R"({"zero_optimization": {"stage": 3}})", "distributed_type: FSDP\n"}) {
    const Plan plan = Plan::parse(file, "file", {.ranks = 2});
    const auto settings =
        effective_settings(plan, options, 2, [](std::string_view) { return false; });
    const auto told = nlohmann::json::parse(with_settings("{}", settings));
    for (const auto& [flag, row] : told.items()) EXPECT_NE(row["effect"], "") << flag;
  }
}

}  // namespace
}  // namespace fullshard::config
