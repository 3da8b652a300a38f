// SPDX-License-Identifier: Apache-2.0
// The flags of `accelerate launch` that `launch` takes in addition to its own: settings of ranks go
// to the launcher, settings of the model to the ranks.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/config/plan_sections.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fullshard::cli {

class AccelerateFlags {
 public:
  explicit AccelerateFlags(CLI::App& command);
  AccelerateFlags(const AccelerateFlags&) = delete;  // the parser writes into it
  AccelerateFlags& operator=(const AccelerateFlags&) = delete;

  // Throws an Error of kind usage for unsupported flags, with what to write instead, and for values
  // that Accelerate's keys do not accept.
  void check() const;

  const LaunchPlan& launch() const { return launch_; }
  bool has_settings() const;          // any that a configuration could set too
  std::string first_setting() const;  // as it was typed

  // key=value, for an Accelerate file.
  std::vector<std::string> overrides() const;
  // NAME=VALUE, as `accelerate launch` exports them, where there is no file.
  std::vector<std::string> variables() const;
  std::vector<std::string> variables_of_launch() const;  // in any case

 private:
  struct Value {
    std::string typed, path, variable;  // --fsdp_version, fsdp_config.fsdp_version, FSDP_VERSION
    std::string text{};
    CLI::Option* option = nullptr;
  };
  struct Refused {
    std::string typed, advice;
    CLI::Option* option = nullptr;
  };

  void add_settings(CLI::App& command);
  void add_launch(CLI::App& command);
  void add_without_effect(CLI::App& command);
  void add_refused(CLI::App& command);
  bool says_any_of(const std::string& section) const;
  std::string text_of(std::string_view typed) const;  // empty: it was not given
  void check_version() const;
  bool shards() const;  // FSDP, by its own flag or by one of its settings
  bool is_deepspeed() const;

  std::deque<Value> values_;  // the parser keeps their addresses
  std::vector<Refused> refused_;
  LaunchPlan launch_;
  bool use_fsdp_ = false, use_deepspeed_ = false, use_cpu_ = false;
  std::string threads_;  // of a rank
};

}  // namespace fullshard::cli
