// SPDX-License-Identifier: Apache-2.0
// The configuration that `fullshard launch` was given, as its ranks find it: in environment
// variables, which any program (Plan::from_arguments) and our own commands read.
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
  // NAME=VALUE of each; empty ones too, to clear those of an enclosing launch.
  std::vector<std::string> variables() const;
};

// key=value of `fullshard launch` and of the program, which wins where both name a key.
std::vector<std::string> overrides_of(const std::vector<std::string>& launched,
                                      const std::vector<std::string>& own);

// Reads the variables and notifies the launcher.
LaunchedConfig launched_config(const base::LauncherEnvironment& launcher);

}  // namespace fullshard::config
