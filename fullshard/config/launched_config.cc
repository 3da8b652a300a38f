// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/launched_config.h"

#include <fmt/ranges.h>

#include <sstream>

namespace fullshard::config {

std::vector<std::string> LaunchedConfig::variables() const {
  return {"FULLSHARD_CONFIG=" + file, "FULLSHARD_FSDP=" + fsdp,
          "FULLSHARD_FSDP_CONFIG=" + fsdp_config,
          fmt::format("FULLSHARD_SET={}", fmt::join(overrides, "\n")),
          fmt::format("FULLSHARD_ALLOW_UNKNOWN={}", allow_unknown ? "1" : "")};
}

LaunchedConfig launched_config(const base::LauncherEnvironment& launcher) {
  const base::LauncherEnvironment::Config& told = launcher.config;
  LaunchedConfig found{.file = told.file.text_or_empty(),
                       .fsdp = told.fsdp.text_or_empty(),
                       .fsdp_config = told.fsdp_config.text_or_empty(),
                       .allow_unknown = told.allow_unknown.text == "1"};
  std::istringstream lines(told.overrides.text_or_empty());
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) found.overrides.push_back(line);
  }
  return found;
}

}  // namespace fullshard::config
