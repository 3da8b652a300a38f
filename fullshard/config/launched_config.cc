// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/launched_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "fullshard/base/rank_notice.h"

namespace fullshard::config {

std::vector<std::string> LaunchedConfig::variables() const {
  return {"FULLSHARD_CONFIG=" + file, "FULLSHARD_FSDP=" + fsdp,
          "FULLSHARD_FSDP_CONFIG=" + fsdp_config,
          fmt::format("FULLSHARD_SET={}", fmt::join(overrides, "\n")),
          fmt::format("FULLSHARD_ALLOW_UNKNOWN={}", allow_unknown ? "1" : "")};
}

std::vector<std::string> overrides_of(const std::vector<std::string>& launched,
                                      const std::vector<std::string>& own) {
  const auto key_of = [](const std::string& text) { return text.substr(0, text.find('=')); };
  std::vector<std::string> all;
  for (const std::string& text : launched) {
    const auto is_same_key = [&](const std::string& mine) { return key_of(mine) == key_of(text); };
    if (std::none_of(own.begin(), own.end(), is_same_key)) all.push_back(text);
  }
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

LaunchedConfig launched_config(const base::LauncherEnvironment& launcher) {
  base::tell_launcher(launcher.meeting, base::RankNotice::has_read_config);
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
