// SPDX-License-Identifier: Apache-2.0
// `fullshard` as a user types it, in an empty folder, on the checkpoints of tests/fixtures.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launch/shell.h"

namespace fullshard::cli {

inline const std::string kFixtures = FULLSHARD_SOURCE_DIR "/tests/fixtures/checkpoints/";
inline const std::string kResumable = kFixtures + "resumable/";
inline const std::string kWarmup = "--no-save-model --lr 1e-2 --schedule linear --warmup 3";
inline const std::string kConstant = "--no-save-model --lr 1e-2 --schedule constant";

class CheckpointRuns : public ::testing::Test {
 protected:
  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard " + words);
  }
  nlohmann::json run_json(const std::string& words, int status = 0) {
    const launch::Ended ended = run(words + " --json 2> /dev/null");
    EXPECT_EQ(ended.status, status) << words << ended.output;
    return nlohmann::json::parse(ended.output, nullptr, false);
  }

  // As make_resumable.py trains, so that losses can be compared.
  std::string train_words(const std::string& output, int steps,
                          const std::string& rates = kConstant) const {
    return "train --quiet --model " + kResumable + "model --data " + kResumable +
           "tokens.bin --order sequential --sequence-length 8 --micro-batch 2 --adam-beta1 0.9 "
           "--adam-beta2 0.999 --adam-epsilon 1e-8 --weight-decay 0 --clip 0 --output " +
           output + " --steps " + std::to_string(steps) + " " + rates + " ";
  }
  std::vector<double> losses_of(const std::string& output) {
    std::istringstream lines(folder_.read(output + "/metrics.jsonl"));
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);) {
      losses.push_back(nlohmann::json::parse(line)["loss"].get<double>());
    }
    return losses;
  }

  launch::TemporaryFolder folder_;
};

}  // namespace fullshard::cli
