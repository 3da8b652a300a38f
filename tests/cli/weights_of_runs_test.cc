// SPDX-License-Identifier: Apache-2.0
// Which weights, and which end mark, a run begins with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/short_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;

class WeightsOfRuns : public ShortRuns {};

TEST_F(WeightsOfRuns, OfAPresetLearnTheEndMarkOfTheirTokenizer) {
  folder_.write("t.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n");
  const launch::Ended ended = run(
      "train --quiet --data t.jsonl --tokenizer bytes --sequence-length 16 --micro-batch 1 --steps "
      "1 --model llama-tiny");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(nlohmann::json::parse(folder_.read("fullshard-run/model/config.json"))["eos_token_id"],
            257);
}

TEST_F(WeightsOfRuns, OfAFolderWithoutWeightsSaySo) {
  write_tokens("t.bin", 4000);
  std::filesystem::create_directories(folder_ / "bare");
  std::filesystem::copy_file(kRunModels + "llama/config.json", folder_ / "bare/config.json");
  const std::string words = " --data t.bin --sequence-length 16 --micro-batch 2 --model bare ";
  const auto says_so = HasSubstr("warning: bare: holds no weights (");
  EXPECT_THAT(run("eval" + words).output, says_so);
  const std::string train = "train --quiet --steps 1 --overwrite" + words;
  EXPECT_THAT(run(train).output, says_so);
  EXPECT_EQ(run(train + "--from-scratch").output, "");
}

// As left by an interrupted download.
TEST_F(WeightsOfRuns, OfALinkToNowhereAreAnError) {
  write_tokens("t.bin", 4000);
  std::filesystem::create_directories(folder_ / "cut");
  std::filesystem::copy_file(kRunModels + "llama/config.json", folder_ / "cut/config.json");
  std::filesystem::create_symlink("/nowhere/blob", folder_ / "cut/model.safetensors");
  const std::string words = " --data t.bin --sequence-length 16 --micro-batch 2 --model cut";
  for (const std::string command : {"eval", "train --steps 1"}) {
    const launch::Ended ended = run(command + words);
    EXPECT_EQ(ended.status, 4);
    EXPECT_THAT(ended.output,
                HasSubstr("error: cut/model.safetensors: is not a file, or is a link to a missing "
                          "one; weights are expected under this name\n"));
  }
}

TEST_F(WeightsOfRuns, OfALinkToNowhereAreNotMissedFromScratch) {
  write_tokens("t.bin", 4000);
  std::filesystem::create_directories(folder_ / "cut");
  std::filesystem::copy_file(kRunModels + "llama/config.json", folder_ / "cut/config.json");
  std::filesystem::create_symlink("/nowhere/blob", folder_ / "cut/model.safetensors");
  const launch::Ended fresh =
      run("train --quiet --data t.bin --sequence-length 16 --micro-batch 2 --steps 1 --model cut "
          "--from-scratch");
  EXPECT_EQ(fresh.status, 0) << fresh.output;
}

TEST_F(WeightsOfRuns, AreWhatTheConfigurationBesideThemSays) {
  write_tokens("t.bin", 4000);
  ASSERT_EQ(run("train --quiet --data t.bin --sequence-length 16 --micro-batch 2 --steps 1 "
                "--save-every 1 --model " +
                kRunModels + "llama")
                .status,
            0);
  for (const auto& [flags, name] : {std::pair{"", "float32"},
                                    {"--dtype bf16", "bfloat16"},
                                    {"--dtype fp16", "float16"},
                                    {"--dtype keep", "float32"}}) {
    const launch::Ended ended =
        run(std::string("checkpoint export fullshard-run/checkpoints out --overwrite ") + flags);
    ASSERT_EQ(ended.status, 0) << ended.output;
    const auto config = nlohmann::json::parse(folder_.read("out/config.json"));
    EXPECT_EQ(config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"], name);
  }
}

TEST_F(WeightsOfRuns, TakeTheWeightsOfADeepSpeedFolder) {
  write_tokens("t.bin", 4000);
  const std::string train =
      "train --quiet --data t.bin --sequence-length 16 --micro-batch 2 --steps 4 --lr 0.01 "
      "--save-every 4 --model " +
      kRunModels + "llama";
  ASSERT_EQ(run(train).status, 0);
  ASSERT_EQ(run("checkpoint convert fullshard-run/checkpoints ds --to deepspeed").status, 0);
  std::filesystem::copy_file(folder_ / "fullshard-run/model/config.json",
                             folder_ / "ds/config.json");
  const std::string words =
      "eval --json --data t.bin --sequence-length 16 --micro-batch 2 --model ";
  const launch::Ended expected = run(words + "fullshard-run/model"), found = run(words + "ds");
  ASSERT_EQ(found.status, 0) << found.output;
  EXPECT_EQ(found.output, expected.output);
}

}  // namespace
}  // namespace fullshard::cli
