// SPDX-License-Identifier: Apache-2.0
// `tune` and `train --auto` as a user types them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TuneCommand : public ::testing::Test {
 protected:
  launch::Ended run(const std::string& words, const std::string& after = "") {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; " + launch::kHearsInterrupts + "fullshard " + words +
                         after);
  }
  nlohmann::json read_json(const std::string& name) {
    return nlohmann::json::parse(folder_.read(name));
  }

  launch::TemporaryFolder folder_;
  const std::string model_ =
      " --model " FULLSHARD_SOURCE_DIR "/tests/fixtures/models/llama --sequence-length 16 ";
  const std::string quick_ = model_ + "--max-micro-batch 2 --measure-steps 2 ";
};

TEST_F(TuneCommand, PrintsItsRungsAndWritesTheWinner) {
  const auto ended = run("tune --json --quiet --format accelerate --output t" + quick_);
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto rungs = nlohmann::json::parse(ended.output);
  ASSERT_GE(rungs.size(), 10u);
  for (const auto& rung : rungs) {
    for (const char* key :
         {"name", "config", "fits", "planned_bytes", "peak_bytes", "tokens_per_s"}) {
      EXPECT_TRUE(rung.contains(key)) << rung.dump();
    }
  }
  EXPECT_EQ(rungs[0]["measured"], true) << ended.output;
  EXPECT_GT(rungs[0]["planned_bytes"], 0);
  EXPECT_GT(rungs.back()["tokens_per_s"], 0);
  EXPECT_EQ(read_json("t/tune.json")["winner"], rungs.back()["name"]);
  EXPECT_EQ(read_json("t/tuned.json"), rungs.back()["config"]);
  EXPECT_THAT(folder_.read("t/tune.html"), HasSubstr("</html>"));
  EXPECT_EQ(run("config check t/tuned.yaml").status, 0);
  // All results are known: the same output without a measurement.
  EXPECT_EQ(run("tune --json --quiet --budget 0 --output t" + quick_).output, ended.output);
  const auto other = run("tune --quiet --seed 7 --output t" + quick_);
  EXPECT_EQ(other.status, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("is about another run"));
}

// The winning file keeps its settings of them: it is for a run.
TEST_F(TuneCommand, WritesNothingIntoTheFilesOfRuns) {
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 1,
    "tensorboard": {"enabled": true, "output_path": "events"},
    "csv_monitor": {"enabled": true, "output_path": "csv"},
    "flops_profiler": {"enabled": true, "output_file": "flops.txt"}})");
  const auto ended = run("tune --quiet --budget 0 --config ds.json --output t" + quick_);
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(launch::shell("ls " + folder_.path()).output, "ds.json\nt\n");
  EXPECT_EQ(read_json("t/tuned.json")["tensorboard"]["enabled"], true);
}

TEST_F(TuneCommand, BeforeTrainingGivesTheRunItsWinner) {
  std::string tokens;
  for (int i = 0; i < 2000; ++i) tokens += std::string{static_cast<char>(3 + i % 7), '\0'};
  folder_.write("t.bin", tokens);
  const std::string words =
      "train --auto --data t.bin --steps 2 --lr 0.01 --micro-batch 2 "
      "--precision bf16 --recompute --no-save-model --measure-steps 2 "
      "--output run" +
      model_;
  const auto ended = run(words);
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("chosen: batch 2: "));
  const auto tuned = read_json("run/tune/tuned.json");
  EXPECT_EQ(tuned["train_micro_batch_size_per_gpu"], 2);
  EXPECT_EQ(tuned["bf16"]["enabled"], true);
  const auto record = read_json("run/run.json");
  EXPECT_EQ(record["status"], "done");
  EXPECT_THAT(record.dump(), HasSubstr("run/tune/tuned.json"));
  EXPECT_THAT(record["command"].dump(), Not(HasSubstr("--auto")));
}

TEST_F(TuneCommand, GoesOnWhereItWasInterrupted) {
  const std::string words = "tune --quiet --output t" + quick_;
  const auto ended =
      run(words,
          "& tune=$!; for i in $(seq 600); do grep -q '\"measured\": true' t/tune.json 2>/dev/null "
          "&& break; sleep 0.05; done; kill -INT $tune; wait $tune; echo status $?");
  EXPECT_THAT(ended.output, HasSubstr("the same command continues from t/tune.json"));
  EXPECT_THAT(ended.output, HasSubstr("status 130"));
  const auto before = read_json("t/tune.json");
  EXPECT_EQ(before["status"], "interrupted");
  ASSERT_EQ(before["rungs"][0]["measured"], true);
  ASSERT_EQ(run(words).status, 0);
  const auto after = read_json("t/tune.json");
  EXPECT_EQ(after["status"], "done");
  EXPECT_EQ(after["rungs"][0], before["rungs"][0]);
}

TEST_F(TuneCommand, EndsWithThreeAndTheChangesWhereNothingFits) {
  const auto ended =
      run("tune --quiet --ranks 2 --zero-stage 2 --device-memory 1KB --output t" + quick_);
  EXPECT_EQ(ended.status, 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("error: tune: nothing fits. "));
  EXPECT_THAT(ended.output, HasSubstr("In order of cost: "));
  EXPECT_THAT(ended.output, HasSubstr("--zero-stage 3"));
  EXPECT_EQ(read_json("t/tune.json")["status"], "nothing fits");
}

TEST_F(TuneCommand, RefusesWhatItCannotDo) {
  const auto no_budget = run("tune --budget soon" + quick_);
  EXPECT_EQ(no_budget.status, 2) << no_budget.output;
  const auto hosts = run("tune --nnodes 2 --node-rank 0 --ranks 1" + quick_);
  EXPECT_EQ(hosts.status, 2) << hosts.output;
  EXPECT_THAT(hosts.output, HasSubstr("tune: works on the ranks of one host"));
  const auto no_data =
      run("tune --model " FULLSHARD_SOURCE_DIR "/tests/fixtures/models/bert --quiet");
  EXPECT_EQ(no_data.status, 2) << no_data.output;
  EXPECT_THAT(no_data.output, HasSubstr("give --data"));
  const auto data = run("tune --quiet --data absent.bin --output t" + quick_);
  EXPECT_EQ(data.status, 4) << data.output;
  EXPECT_THAT(data.output, HasSubstr("absent.bin"));
}

}  // namespace
}  // namespace fullshard::cli
