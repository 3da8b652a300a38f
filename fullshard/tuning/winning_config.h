// SPDX-License-Identifier: Apache-2.0
// The winner as files for Fullshard, DeepSpeed and Accelerate.
#pragma once

#include <string>
#include <vector>

namespace fullshard::tuning {

enum class ConfigFormat { deepspeed, accelerate };

struct WinningConfig {
  std::string text{};  // a DeepSpeed file
  int ranks = 1;
  bool on_gpus = false;
};

// An Accelerate file of type DEEPSPEED that names `deepspeed_file`, since only that can express a
// micro-batch, stage 1 and recomputation. No other key may be given with it.
std::string accelerate_text(const WinningConfig& winner, const std::string& deepspeed_file);

// Writes FOLDER/tuned.json and, for Accelerate, FOLDER/tuned.yaml next to it. Returns their names,
// the one to use first.
std::vector<std::string> write_winning_config(const WinningConfig& winner, ConfigFormat format,
                                              const std::string& folder);

}  // namespace fullshard::tuning
