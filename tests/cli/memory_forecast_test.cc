// SPDX-License-Identifier: Apache-2.0
// The plan that `train` makes before it starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;

// 400 billion parameters: no host has the memory to train them in fp32.
constexpr const char* kLarge = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128,
  "num_key_value_heads": 8, "intermediate_size": 53248, "max_position_embeddings": 512,
  "vocab_size": 128256, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false})";

class MemoryForecasts : public ::testing::Test {
 protected:
  void SetUp() override { folder_.write("tokens.bin", std::string(40000, '\0')); }

  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard " + words);
  }

  launch::TemporaryFolder folder_;
};

TEST_F(MemoryForecasts, EndARunThatCannotFitBeforeAnythingStarts) {
  std::filesystem::create_directories(folder_ / "large");
  folder_.write("large/config.json", kLarge);
  std::filesystem::create_directories(folder_ / "out");
  folder_.write("out/run.json", "{}");
  const auto ended =
      run("train --model large --data tokens.bin --ranks 2 --device cpu --micro-batch 4 --steps 1 "
          "--output out --overwrite");
  EXPECT_EQ(ended.status, 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("memory: does not fit: "));
  EXPECT_THAT(ended.output, HasSubstr("nothing was started. In order of cost: more ranks (2 now), "
                                      "--precision bf16, offload to a disk: --offload all:FOLDER "
                                      "with --zero-stage 3"));
  EXPECT_EQ(folder_.read("out/run.json"), "{}");
}

TEST_F(MemoryForecasts, StandInTheRecordBesideWhatWasHeld) {
  const auto ended =
      run("train --model llama-tiny --data tokens.bin --ranks 2 --device cpu --sequence-length 64 "
          "--micro-batch 2 --steps 2 --output out --no-save-model --quiet --trace trace.json");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto memory = nlohmann::json::parse(folder_.read("out/run.json"))["memory_plan"];
  const auto& device = memory["planned"]["device"];
  EXPECT_GT(device["peak_bytes"], device["rest_bytes"]);
  EXPECT_THAT(device["peak_at"].get<std::string>(), HasSubstr("backward"));
  // Shards do not depend on measurements: they are planned to the byte.
  int64_t held = 0;
  for (const auto& share : memory["ranks"][0]) {
    if (share["purpose"] == "optimizer") held += share["bytes"].get<int64_t>();
  }
  EXPECT_GT(held, 0);
  EXPECT_EQ(device["by_purpose"]["optimizer"], held);
  EXPECT_THAT(folder_.read("out/report.html"), HasSubstr("Planned before the start: "));
  const auto trace = nlohmann::json::parse(folder_.read("trace.json"))["traceEvents"];
  const auto is_backward = [](const auto& event) { return event["name"] == "backward"; };
  EXPECT_EQ(std::count_if(trace.begin(), trace.end(), is_backward), 2);
}

TEST_F(MemoryForecasts, AreLeftOutWhenAskedFor) {
  const auto ended =
      run("train --model llama-tiny --data tokens.bin --ranks 1 --device cpu --sequence-length 64 "
          "--micro-batch 1 --steps 1 --output out --no-save-model --quiet --no-plan");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto memory = nlohmann::json::parse(folder_.read("out/run.json"))["memory_plan"];
  EXPECT_TRUE(memory["planned"].empty());
}

}  // namespace
}  // namespace fullshard::cli
