// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/winning_config.h"

#include <climits>
#include <cstdlib>

#include "fullshard/config/convert.h"
#include "fullshard/report/records/run_file.h"

namespace fullshard::tuning {
namespace {

// Accelerate resolves paths from the folder where it is started.
std::string absolute_path(const std::string& path) {
  char whole[PATH_MAX];
  return ::realpath(path.c_str(), whole) != nullptr ? whole : path;
}

}  // namespace

std::string accelerate_text(const WinningConfig& winner, const std::string& deepspeed_file) {
  return config::accelerate_text_naming(deepspeed_file, winner.ranks, !winner.on_gpus);
}

std::vector<std::string> write_winning_config(const WinningConfig& winner, ConfigFormat format,
                                              const std::string& folder) {
  const std::string deepspeed = folder + "/tuned.json";
  report::write_whole_file(deepspeed, winner.text);
  if (format == ConfigFormat::deepspeed) return {deepspeed};
  const std::string accelerate = folder + "/tuned.yaml";
  report::write_whole_file(accelerate, accelerate_text(winner, absolute_path(deepspeed)));
  return {accelerate, deepspeed};
}

}  // namespace fullshard::tuning
