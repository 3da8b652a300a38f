// SPDX-License-Identifier: Apache-2.0
// The last step of an epoch has fewer examples than the others, or none on some ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;

class PartialBatches : public ::testing::Test {
 protected:
  // This many sequences of 16 tokens.
  void write_sequences(int count) {
    std::string bytes;
    for (int i = 0; i < count * 16 + 1; ++i) bytes += {static_cast<char>(3 + i * i % 41), '\0'};
    folder_.write("t.bin", bytes);
  }

  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard train --quiet --model " FULLSHARD_SOURCE_DIR
                         "/tests/fixtures/models/llama --data t.bin --sequence-length 16 --lr 1e-2 "
                         "--no-save-model --overwrite " +
                         words);
  }

  // Loss and tokens of every step.
  std::vector<std::pair<double, int64_t>> steps_of(const std::string& words) {
    const launch::Ended ended = run(words);
    EXPECT_EQ(ended.status, 0) << ended.output;
    std::istringstream lines(folder_.read("fullshard-run/metrics.jsonl"));
    std::vector<std::pair<double, int64_t>> steps;
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      steps.emplace_back(record["loss"].get<double>(), record["tokens"].get<int64_t>());
    }
    return steps;
  }

  launch::TemporaryFolder folder_;
};

TEST_F(PartialBatches, GiveTheSameOnAnyNumberOfRanks) {
  write_sequences(9);
  const auto expected = steps_of("--micro-batch 4 --epochs 2");
  ASSERT_EQ(expected.size(), 6);  // 4, 4 and 1 of 9, twice
  EXPECT_EQ(expected[0].second, 64);
  EXPECT_EQ(expected[2].second, 16);
  for (const std::string how :
       {"--ranks 2 --micro-batch 2", "--ranks 2 --micro-batch 1 --accumulate 2",
        "--ranks 2 --micro-batch 1 --accumulate 2 --reduce-once", "--micro-batch 1 --accumulate 4",
        "--ranks 4 --micro-batch 1 --strategy NO_SHARD"}) {
    const auto steps = steps_of(how + " --epochs 2");
    ASSERT_EQ(steps.size(), 6) << how;
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(steps[i].first, expected[i].first, 2e-4) << how << " step " << i;
      EXPECT_EQ(steps[i].second, expected[i].second) << how << " step " << i;
    }
  }
}

TEST_F(PartialBatches, MayBeAllThereIs) {
  write_sequences(1);
  const auto expected = steps_of("--micro-batch 8 --steps 3");
  const auto steps = steps_of("--ranks 2 --micro-batch 4 --steps 3");
  ASSERT_EQ(steps.size(), 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(steps[i].first, expected[i].first, 1e-4);
}

TEST_F(PartialBatches, AreLeftOutWhereThatIsAskedFor) {
  write_sequences(9);
  EXPECT_EQ(steps_of("--micro-batch 4 --epochs 2 --drop-last").size(), 4);
  EXPECT_EQ(steps_of("--per_device_train_batch_size 4 --dataloader_drop_last True").size(), 2);
  EXPECT_EQ(steps_of("--micro-batch 4 --epochs 0.5").size(), 2);  // of three
  folder_.write("ds.json", R"({"dataloader_drop_last": true, "train_batch_size": 4})");
  EXPECT_EQ(steps_of("--config ds.json").size(), 2);
  const launch::Ended none = run("--micro-batch 16 --drop-last");
  EXPECT_EQ(none.status, 4);
  EXPECT_THAT(none.output, HasSubstr("data: there are 9 examples, but one step takes 16"));
}

TEST_F(PartialBatches, AreResumedToTheBit) {
  write_sequences(9);
  const std::string words = "--ranks 2 --micro-batch 2 --epochs 2 --save-every epoch ";
  const auto whole = steps_of(words);
  ASSERT_EQ(whole.size(), 6);
  const launch::Ended ended =
      run(words + "--resume fullshard-run/checkpoints/step-000003 --output again");
  ASSERT_EQ(ended.status, 0) << ended.output;
  std::istringstream lines(folder_.read("again/metrics.jsonl"));
  std::string line;
  for (size_t i = 3; i < 6; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(nlohmann::json::parse(line)["loss"].get<double>(), whole[i].first) << i;
  }
}

}  // namespace
}  // namespace fullshard::cli
