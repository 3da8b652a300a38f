// SPDX-License-Identifier: Apache-2.0
// The flags that name a configuration, for every command that uses one.
#pragma once

#include <string>
#include <vector>

#include "fullshard/config/launched_config.h"
#include "fullshard/config/plan.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fullshard::cli {

// --unknown-keys error or warn; `allows` must outlive the parser.
CLI::Option* add_unknown_keys(CLI::App& command, bool& allows);

class ConfigFlags {
 public:
  explicit ConfigFlags(CLI::App& command);
  ConfigFlags(const ConfigFlags&) = delete;  // the parser writes into it
  ConfigFlags& operator=(const ConfigFlags&) = delete;

  // The file that a flag, FULLSHARD_CONFIG, `fullshard config` or `accelerate config` named; empty:
  // there is none, or --fsdp's words stand for one.
  std::string file() const;
  bool is_named() const;  // by a flag or the environment, not the default file
  bool has_overrides() const { return !overrides_.empty(); }
  // Adds them like further --set key=value.
  void add_overrides(const std::vector<std::string>& texts) {
    overrides_.insert(overrides_.end(), texts.begin(), texts.end());
  }
  // The configuration for the ranks of a launched program.
  config::LaunchedConfig for_ranks() const;
  // Reads the named configuration. --set and --unknown-keys are added to `options`; a note on
  // standard error names the default file (on one rank: `is_quiet` for the others). Without any
  // file: Accelerate's environment, or FULL_SHARD with all defaults.
  Plan load(PlanOptions options, bool is_quiet = false) const;

 private:
  std::string named_file() const;
  // --fsdp and --fsdp-config: the flags', else those that this program was launched with.
  config::LaunchedConfig words() const;

  const config::LaunchedConfig launched_;
  std::string config_, deepspeed_, fsdp_, fsdp_config_;
  std::vector<std::string> overrides_;
  bool allow_unknown_ = false;
};

}  // namespace fullshard::cli
