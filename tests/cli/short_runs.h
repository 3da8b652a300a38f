// SPDX-License-Identifier: Apache-2.0
// Commands as a user types them, each in its own folder.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launch/shell.h"

namespace fullshard::cli {

inline const std::string kRunFixtures = FULLSHARD_SOURCE_DIR "/tests/fixtures/";
inline const std::string kRunModels = kRunFixtures + "models/";

class ShortRuns : public ::testing::Test {
 protected:
  // No default file, few threads.
  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard " + words);
  }

  // Tokens that repeat with a period of 7, as nanoGPT keeps them.
  void write_tokens(const std::string& name, int count, int vocabulary = 50) {
    std::string bytes;
    for (int i = 0; i < count; ++i) {
      bytes += static_cast<char>(3 + i * i % 7 + (i % 11 == 0 ? vocabulary - 12 : 0));
      bytes += '\0';
    }
    folder_.write(name, bytes);
  }

  std::vector<nlohmann::json> metrics(const std::string& output) {
    std::istringstream lines(folder_.read(output + "/metrics.jsonl"));
    std::vector<nlohmann::json> records;
    for (std::string line; std::getline(lines, line);) {
      records.push_back(nlohmann::json::parse(line));
    }
    return records;
  }

  launch::TemporaryFolder folder_;
};

}  // namespace fullshard::cli
