// SPDX-License-Identifier: Apache-2.0
// How a run applies a configuration file and flags in addition to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "fullshard/cli/flags/run_arguments.h"
#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ConfiguredRuns : public ::testing::Test {
 protected:
  ConfiguredRuns() {
    std::string bytes;
    for (int i = 0; i < 4000; ++i) bytes += {static_cast<char>(3 + i * i % 7), '\0'};
    folder_.write("t.bin", bytes);
  }

  launch::Ended train(const std::string& words) {
    return launch::shell(
        "cd " + folder_.path() +
        "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
        " OMP_NUM_THREADS=1; fullshard train --no-save-model --sequence-length 16 --data "
        "t.bin --output run --overwrite --model " FULLSHARD_SOURCE_DIR
        "/tests/fixtures/models/llama " +
        words);
  }

  std::vector<double> recorded(const std::string& key) {
    std::istringstream lines(folder_.read("run/metrics.jsonl"));
    std::vector<double> values;
    for (std::string line; std::getline(lines, line);) {
      values.push_back(nlohmann::json::parse(line)[key].get<double>());
    }
    return values;
  }

  launch::TemporaryFolder folder_;
};

TEST_F(ConfiguredRuns, TrainWithTheFlagsLearningRate) {
  folder_.write("ds.json", R"({
    "train_micro_batch_size_per_gpu": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "scheduler": {"type": "WarmupLR",
                  "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}})");
  const launch::Ended ended = train("--deepspeed ds.json --lr 0.25 --micro-batch 2 --steps 4");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(recorded("lr"), ElementsAre(0, 0, 0.25, 0.25));
}

TEST_F(ConfiguredRuns, DeriveTheBatchAfterFlags) {
  folder_.write("acc.yaml",
                "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n"
                "  zero_stage: 2\n  gradient_accumulation_steps: 3\n");
  const launch::Ended ended = train("--config acc.yaml --micro-batch 2 --steps 1");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(recorded("tokens"), ElementsAre(2 * 2 * 3 * 16));
}

TEST_F(ConfiguredRuns, WithoutAFileBeginWithTheWholeRate) {
  const launch::Ended ended = train("--micro-batch 2 --steps 2 --lr 0.5");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(recorded("lr"), ElementsAre(0.5, 0.25));
}

TEST_F(ConfiguredRuns, ShowMemoryByPurposeWhereItIsAskedFor) {
  const auto output = [&](const std::string& value) {
    folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "memory_breakdown": )" +
                                 value + R"(, "zero_optimization": {"stage": 1}})");
    const launch::Ended ended = train("--deepspeed ds.json --ranks 2 --steps 1");
    EXPECT_EQ(ended.status, 0) << ended.output;
    return ended.output;
  };
  const std::string shown = output("true");
  EXPECT_THAT(shown, HasSubstr("memory of rank 0 at its peak: "));
  EXPECT_THAT(shown, HasSubstr("memory of rank 1 at its peak: "));
  EXPECT_THAT(shown, HasSubstr("optimizer "));
  EXPECT_THAT(output("false"), Not(HasSubstr("at its peak")));
}

TEST_F(ConfiguredRuns, WriteEventsAndCsvWhereTheFileSays) {
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2,
    "tensorboard": {"enabled": true, "output_path": "logs/", "job_name": "events"},
    "csv_monitor": {"enabled": true}})");
  const launch::Ended ended = train("--deepspeed ds.json --ranks 2 --steps 3 --lr 0.5");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(launch::shell("ls " + folder_ / "logs/events").output,
              HasSubstr("events.out.tfevents.fullshard."));
  const std::vector<double> losses = recorded("loss");
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_EQ(
      folder_.read("run/csv/Train_Samples_train_loss.csv"),
      fmt::format("step,train_loss\r\n4,{}\r\n8,{}\r\n12,{}\r\n", losses[0], losses[1], losses[2]));
}

TEST_F(ConfiguredRuns, ReportToWhatTheFlagSays) {
  EXPECT_EQ(train("--micro-batch 2 --steps 1").status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/tensorboard"));
  const launch::Ended ended = train("--micro-batch 2 --steps 1 --report-to all");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/tensorboard"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/csv/train_loss.csv"));
}

TEST_F(ConfiguredRuns, RefuseToReportElsewhereThanTheFileSays) {
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2,
    "tensorboard": {"enabled": true}})");
  const launch::Ended ended = train("--deepspeed ds.json --steps 1 --report-to csv");
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.output,
              HasSubstr("ds.json:2: tensorboard.enabled: is true, but --report-to is csv"));
  EXPECT_THAT(train("--steps 1 --report-to wandb").output,
              HasSubstr("--report-to: is \"wandb\", expected one of none, tensorboard, csv, all"));
}

TEST_F(ConfiguredRuns, PrintTheTablesOfCollectivesAndFlops) {
  const std::string plain = R"({"train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 2})";
  folder_.write("plain.json", plain + "}");
  ASSERT_EQ(train("--deepspeed plain.json --ranks 2 --steps 2").status, 0);
  const std::vector<double> losses = recorded("loss");
  folder_.write("ds.json", plain + R"(, "comms_logger": {"enabled": true, "debug": true},
    "flops_profiler": {"enabled": true, "profile_step": 2, "output_file": "flops.txt"}})");
  const launch::Ended ended = train("--deepspeed ds.json --ranks 2 --steps 2");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(recorded("loss"), losses);  // observing a step does not change it
  EXPECT_THAT(ended.output, HasSubstr("collectives of rank 0:\nComm. Op "));
  EXPECT_THAT(ended.output, HasSubstr("reduce_scatter of unit 'model.layers.0'\n"));
  EXPECT_THAT(ended.output, HasSubstr("flops profile of step 2: flops.txt"));
  const std::string table = folder_.read("flops.txt");
  EXPECT_THAT(table, HasSubstr("Flops profile at step 2"));
  // 6,912 weights of a layer's products, 32 tokens; attention of 16 positions behind each other.
  EXPECT_THAT(table,
              ::testing::ContainsRegex("model.layers.1 \\(LlamaDecoderLayer\\) +6.98 K +40.6% "
                                       "+475.14 K +41.1% +966.66 K\n"));
}

TEST_F(ConfiguredRuns, SayThatAStepToProfileNeverComes) {
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2,
    "flops_profiler": {"enabled": true, "profile_step": 9}})");
  EXPECT_THAT(train("--deepspeed ds.json --steps 1").output,
              HasSubstr("flops_profiler.profile_step: is 9, but this run makes steps 1 to 1"));
}

TEST(DeviceOfRun, IsTheFlagsThenTheConfigurationsThenWhatThereIs) {
  EXPECT_EQ(device_of_run("cuda", "cpu", true), "cuda");
  EXPECT_EQ(device_of_run("", "cpu", true), "cpu");  // use_cpu: true
  EXPECT_EQ(device_of_run("", {}, true), "cuda");
  EXPECT_EQ(device_of_run("", {}, false), "cpu");
}

}  // namespace
}  // namespace fullshard::cli
