// SPDX-License-Identifier: Apache-2.0
// What `train` reports: its totals, its page, and flags without effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

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

// Whatever dtype the weights are kept in for --precision.
TEST_F(ToldRuns, EvaluateInThePrecisionThatIsAskedFor) {
  write_tokens("t.bin", 2000);
  std::map<std::string, std::string> found;
  for (const std::string kept : {"no", "bf16"}) {
    for (const std::string asked : {"no", "bf16", "fp16"}) {
      const launch::Ended ended =
          run("eval --json --device cpu --data t.bin --sequence-length 16 --micro-batch 4 "
              "--max-samples 8 --precision " +
              kept + " --eval-precision " + asked + " --model " + kRunModels + "llama");
      ASSERT_EQ(ended.status, 0) << kept << ' ' << asked << ended.output;
      const auto loss = nlohmann::json::parse(ended.output)["loss"].dump();
      if (asked != "bf16") {  // weights in bf16, or products of fp32 ones
        EXPECT_EQ(found.emplace(asked, loss).first->second, loss) << kept << ' ' << asked;
      } else {
        EXPECT_NE(loss, found.at("no")) << kept;
      }
    }
  }
  EXPECT_NE(found.at("no"), found.at("fp16"));
  const launch::Ended trained =
      run("train --device cpu --data t.bin --sequence-length 16 --micro-batch 2 --steps 1 "
          "--eval-data t.bin --precision bf16 --eval-precision fp16 --model " +
          kRunModels + "llama");
  EXPECT_EQ(trained.status, 2);
  EXPECT_THAT(trained.output,
              HasSubstr("error: --eval-precision: is fp16, but this run gathers its "
                        "parameters in BFloat16; leave it out, or evaluate what is "
                        "saved with fullshard eval --eval-precision fp16"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "fullshard-run/run.json"));
}

TEST_F(ToldRuns, ArePlannedOnTheHostsThatAreSaid) {
  const auto held = [&](const std::string& words) {
    const launch::Ended ended =
        run("estimate --json --device cpu --model llama-tiny --sequence-length 16 " + words);
    EXPECT_EQ(ended.status, 0) << ended.output;
    return nlohmann::json::parse(ended.output)["device"]["by_purpose"]["optimizer"].get<int64_t>();
  };
  const std::string hybrid = "--strategy HYBRID_SHARD ";
  EXPECT_EQ(held(hybrid + "--ranks 2 --nnodes 2"), held(hybrid + "--ranks 4 --sharding-factor 2"));
  EXPECT_GT(held(hybrid + "--ranks 2 --nnodes 2"), held(hybrid + "--ranks 4"));
}

TEST_F(ToldRuns, WarnThatAPresetHasNoWeights) {
  write_tokens("t.bin", 2000);
  const std::string warning =
      "warning: llama-tiny: is a preset, which has no weights: new ones are drawn; name a folder "
      "to "
      "run a model that was trained\n";
  EXPECT_THAT(run("eval --tokenizer bytes --model llama-tiny --data t.bin --max-samples 2").output,
              HasSubstr(warning));
  EXPECT_THAT(
      run("generate --tokenizer bytes --model llama-tiny --prompt a --max-new-tokens 1").output,
      HasSubstr(warning));
}

TEST_F(ToldRuns, RecordWhatHoldsWhereNobodySaidAnything) {
  write_tokens("t.bin", 2000);
  ASSERT_EQ(run("train --quiet --data t.bin --sequence-length 16 --micro-batch 2 --steps 1 --wrap "
                "20000 --no-save-model --model " +
                kRunModels + "llama")
                .status,
            0);
  const auto told = nlohmann::json::parse(folder_.read("fullshard-run/run.json"))["configuration"];
  EXPECT_EQ(told["--lr"]["value"], 5e-5);
  EXPECT_EQ(told["--lr"]["origin"], "default");
  EXPECT_EQ(told["--optimizer"]["value"], "AdamW");
  EXPECT_EQ(told["--seed"]["value"], 42);
  EXPECT_EQ(told["--micro-batch"]["value"], 2);
  EXPECT_EQ(told["--micro-batch"]["origin"], "flag");
  EXPECT_EQ(told["--wrap"]["value"], 20000);
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

// A resumed run reports all its steps; one that began in another folder says so.
TEST_F(ToldRuns, CountTheStepsOfAllTheirParts) {
  write_tokens("t.bin", 4000);
  const std::string words =
      "--quiet --json --no-save-model --data t.bin --sequence-length 16 --micro-batch 2 --model " +
      kRunModels + "llama ";
  ASSERT_EQ(run("train --output first --steps 2 --save-every 2 " + words).status, 0);
  const auto resumed = run("train --output first --steps 5 --resume auto " + words);
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  const auto begun = run("train --output second --steps 5 --resume first/checkpoints " + words);
  ASSERT_EQ(begun.status, 0) << begun.output;
  for (const auto& [folder, ended, since] :
       {std::tuple("first", &resumed, 0), std::tuple("second", &begun, 2)}) {
    const int tokens = (5 - since) * 2 * 16;
    const auto summary = nlohmann::json::parse(ended->output);
    EXPECT_EQ(summary["steps"], 5) << folder;
    EXPECT_EQ(summary["first_step"], 2) << folder;
    EXPECT_EQ(summary["tokens"], tokens) << folder;
    const auto report = nlohmann::json::parse(run(std::string("report --json ") + folder).output);
    EXPECT_EQ(report["steps"], 5) << folder;
    EXPECT_EQ(report["counted_since"], since) << folder;
    EXPECT_EQ(report["first_step"], 2) << folder;
    EXPECT_EQ(report["tokens"], tokens) << folder;
    const auto record = nlohmann::json::parse(folder_.read(std::string(folder) + "/run.json"));
    EXPECT_EQ(record["tokens"], tokens) << folder;
  }
  EXPECT_THAT(folder_.read("first/report.html"), HasSubstr("since step 2; "));
}

// A scale of 2^32 overflows in every step of a few.
TEST_F(ToldRuns, FailWhereEveryStepWasSkipped) {
  write_tokens("t.bin", 4000);
  const std::string words =
      "train --quiet --device cpu --data t.bin --eval-data t.bin --eval-batches 1 --keep-best "
      "--sequence-length 16 --micro-batch 2 --steps 3 --overwrite --config fp16.json --model " +
      kRunModels + "llama ";
  folder_.write("fp16.json", R"({"fp16": {"enabled": true, "initial_scale_power": 32}})");
  const std::string text =
      "nothing was learnt: 3 of 3 steps were skipped, because their gradients were not finite; "
      "begin with a lower loss scale (fp16.initial_scale_power), or train in bf16";
  const launch::Ended ended = run(words);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.output, HasSubstr("error: " + text + "; no model is written\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "fullshard-run/model"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "fullshard-run/best"));
  const auto record = nlohmann::json::parse(folder_.read("fullshard-run/run.json"));
  EXPECT_EQ(record["status"], "failed");
  EXPECT_THAT(record["problem"].get<std::string>(), HasSubstr(text));
  // No weights were trained: a warning, as for steps that are only measured.
  const launch::Ended measured = run(words + "--no-save-model");
  EXPECT_EQ(measured.status, 0) << measured.output;
  EXPECT_THAT(measured.output, HasSubstr("warning: " + text + "\n"));
}

TEST_F(ToldRuns, WarnAtTheEndWhereMostStepsWereSkipped) {
  write_tokens("t.bin", 4000);
  folder_.write("fp16.json", R"({"fp16": {"enabled": true, "initial_scale_power": 24,
                                          "hysteresis": 1}})");
  const launch::Ended ended =
      run("train --quiet --device cpu --data t.bin --sequence-length 16 --micro-batch 2 --steps 12 "
          "--config fp16.json --model " +
          kRunModels + "llama");
  ASSERT_EQ(ended.status, 0) << ended.output;
  int skipped = 0;
  for (const auto& step : metrics("fullshard-run")) skipped += step["skipped"] ? 1 : 0;
  EXPECT_GT(skipped, 6);
  EXPECT_LT(skipped, 12);
  EXPECT_THAT(ended.output,
              HasSubstr("warning: " + std::to_string(skipped) + " of 12 steps were skipped"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "fullshard-run/model"));
}

TEST_F(ToldRuns, SayWhichFlagsHaveNoEffect) {
  write_tokens("t.bin", 4000);
  const launch::Ended ended = run(
      "train --quiet --no-save-model --data t.bin --sequence-length 16 --micro-batch 2 --steps 1 "
      "--epochs 2 --eval-every 1 --keep-best --keep 2 --target-length 8 --node-local --budget 5 "
      "--max-micro-batch 4 --model " +
      kRunModels + "llama");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(ended.output,
            "warning: --eval-every: has no effect without --eval-data or "
            "--validation-split\nwarning: --keep-best: has no effect without --eval-data or "
            "--validation-split\nwarning: --keep: has no effect without --save-every\nwarning: "
            "--node-local: has no effect without --save-every\nwarning: --budget: has no effect "
            "without --auto\nwarning: --max-micro-batch: has no effect without --auto\nwarning: "
            "--epochs: has no effect with --steps\nwarning: --target-length: has no "
            "effect for a model without a decoder of its own\n");
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
