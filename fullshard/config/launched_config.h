// SPDX-License-Identifier: Apache-2.0
// The configuration that `fullshard launch` was given, as its ranks find it: in variables, so that
// any program reads it (Plan::from_arguments), and our own commands do.
#pragma once

#include <string>
#include <vector>

#include "fullshard/base/launcher_environment.h"

namespace fullshard::config {

struct LaunchedConfig {
  std::string file{};                    // FULLSHARD_CONFIG: --config or --deepspeed
  std::string fsdp{};                    // FULLSHARD_FSDP: the Trainer's words
  std::string fsdp_config{};             // FULLSHARD_FSDP_CONFIG
  std::vector<std::string> overrides{};  // FULLSHARD_SET: key=value, one per line
  bool allow_unknown = false;            // FULLSHARD_ALLOW_UNKNOWN is 1

  bool has_words() const { return !fsdp.empty() || !fsdp_config.empty(); }
  // NAME=VALUE of each; empty ones too, so that nothing of a launch around this one is left.
  std::vector<std::string> variables() const;
};

// key=value of `fullshard launch` and a program's own, which win where both name a key.
std::vector<std::string> overrides_of(const std::vector<std::string>& launched,
                                      const std::vector<std::string>& own);

// The launcher is told that it was read.
LaunchedConfig launched_config(const base::LauncherEnvironment& launcher);

}  // namespace fullshard::config
