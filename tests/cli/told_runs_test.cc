// SPDX-License-Identifier: Apache-2.0
// What `train` tells of itself: its totals, its page, and flags that do nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/short_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;

class ToldRuns : public ShortRuns {};

TEST_F(ToldRuns, TakeFp32ForNoMixedPrecision) {
  write_tokens("t.bin", 4000);
  const std::string words =
      "train --overwrite --no-save-model --data t.bin --sequence-length 16 --micro-batch 2 --steps "
      "1 --eval-data t.bin --eval-every 1 --eval-batches 1 --model " +
      kRunModels + "llama ";
  const launch::Ended plain = run(words + "--precision no --eval-precision no");
  const launch::Ended named = run(words + "--precision fp32 --eval-precision fp32");
  ASSERT_EQ(plain.status, 0) << plain.output;
  ASSERT_EQ(named.status, 0) << named.output;
  const auto record = nlohmann::json::parse(folder_.read("fullshard-run/run.json"));
  EXPECT_EQ(record["configuration"]["mixed_precision"]["value"], "no");
}

TEST_F(ToldRuns, TakeASeedThat64BitsHold) {
  write_tokens("t.bin", 4000);
  const std::string words = "eval --data t.bin --sequence-length 16 --micro-batch 4 --model " +
                            kRunModels + "llama --seed ";
  for (const std::string seed : {"-1", "18446744073709551616", "1.5"}) {
    const launch::Ended ended = run(words + seed);
    EXPECT_EQ(ended.status, 2) << seed;
    EXPECT_THAT(ended.output,
                HasSubstr("is " + seed + ", expected a whole number from 0 to 2^64 - 1"));
  }
  EXPECT_EQ(run(words + "18446744073709551615").status, 0);
}

TEST_F(ToldRuns, CountStepsThatWereNotLogged) {
  write_tokens("t.bin", 4000);
  const launch::Ended ended =
      run("train --json --quiet --ranks 2 --no-save-model --data t.bin --sequence-length 16 "
          "--micro-batch 2 --steps 8 --log-every 8 --schedule WarmupDecayLR --model " +
          kRunModels + "llama");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto summary = nlohmann::json::parse(ended.output);
  EXPECT_EQ(summary["steps"], 8);
  EXPECT_EQ(summary["tokens"], 8 * 2 * 2 * 16);
}

TEST_F(ToldRuns, SayWhichFlagsHaveNoEffect) {
  write_tokens("t.bin", 4000);
  const launch::Ended ended = run(
      "train --quiet --no-save-model --data t.bin --sequence-length 16 --micro-batch 2 --steps 1 "
      "--epochs 2 --eval-every 1 --keep-best --keep 2 --target-length 8 --model " +
      kRunModels + "llama");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(ended.output,
            "warning: --eval-every: has no effect without --eval-data or --validation-split\n"
            "warning: --keep-best: has no effect without --eval-data or --validation-split\n"
            "warning: --keep: has no effect without --save-every\n"
            "warning: --epochs: has no effect beside --steps\n"
            "warning: --target-length: has no effect for a model without a decoder of its own\n");
}

TEST_F(ToldRuns, EndWellWithoutTheirPage) {
  write_tokens("t.bin", 4000);
  std::filesystem::create_directories(folder_ / "out/report.html");
  const launch::Ended ended =
      run("train --quiet --data t.bin --sequence-length 16 --micro-batch 2 --steps 1 --output out "
          "--model " +
          kRunModels + "llama");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("warning: out/report.html: "));
  EXPECT_EQ(nlohmann::json::parse(folder_.read("out/run.json"))["status"], "done");
}

}  // namespace
}  // namespace fullshard::cli
