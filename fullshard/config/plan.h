// SPDX-License-Identifier: Apache-2.0
// A parsed and checked configuration: every value typed, with the place it came from. The same
// Plan comes from an Accelerate YAML, a DeepSpeed JSON, the Trainer's fsdp_config, the command line
// or code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/config/auto_values.h"
#include "fullshard/config/document/problem.h"
#include "fullshard/config/flags.h"
#include "fullshard/config/plan_sections.h"
#include "fullshard/config/schema/batch_sizes.h"
#include "fullshard/config/schema/settings.h"

namespace fullshard::config {
class PlanMaker;
}  // namespace fullshard::config

namespace fullshard {

struct PlanOptions {
  bool allow_unknown = false;
  std::vector<std::string> overrides{};  // "key=value", as --set
  std::vector<FlagValue> flags{};        // a program's own flags that stand for keys
  // What is known of the run; what is absent is not checked.
  std::optional<int64_t> ranks{};
  std::optional<int64_t> assumed_ranks{};  // for batch sizes when nothing else gives them
  std::optional<std::string> device{};     // "cpu" or "cuda"
  AutoInputs inputs{};
};

struct PlanReading;

class Plan {
 public:
  // Like an empty file: every default. Fields may be set before check().
  Plan() = default;

  // Errors are of kind usage and list every problem, or say that the file cannot be read.
  static Plan load(const std::string& file, const PlanOptions& options = {});
  static Plan parse(std::string_view text, const std::string& name = "text",
                    const PlanOptions& options = {});
  // From the Trainer's --fsdp words and --fsdp_config file, either of which may be empty. With
  // neither: from Accelerate's environment, else FULL_SHARD with every default.
  static Plan from_words(const std::string& words, const std::string& config_file,
                         const PlanOptions& options = {});
  // Takes --deepspeed FILE, --fsdp WORDS, --fsdp_config FILE, --config FILE, --set key=value and
  // --unknown-keys warn out of the arguments (dashes and underscores alike, also --flag=value) and
  // keeps the program's own. Without any of them: what `fullshard launch` was given
  // (launched_config.h), or Accelerate's environment, if it is there; launch's --set counts in any
  // case, the program's own wins.
  static Plan from_arguments(int& count, char** arguments, const PlanOptions& options = {});

  LaunchPlan launch{};
  ShardingPlan sharding{};
  WrapPlanSettings wrap{};
  PrecisionPlan precision{};
  OptimizerPlan optimizer{};
  SchedulerPlan scheduler{};
  BatchPlan batch{};
  Setting<double> clipping{1.0};          // largest global norm; 0: none
  Setting<bool> compute_grad_norm{true};  // also without clipping
  OffloadPlan offload{};
  RecomputePlan recompute{};
  CheckpointPlan checkpoint{};
  LoggingPlan logging{};
  XlaPlan xla{};

  // Checks for settings that disagree, or that these ranks or this device cannot have. Throws as
  // load().
  void check(std::optional<int64_t> ranks = {}, std::optional<std::string> device = {}) const;

  // Settings that are accepted without effect, and why; settings honoured despite an odd spelling.
  const std::vector<Problem>& warnings() const { return warnings_; }
  // "auto" keys that nothing known so far resolves, such as those that need the model.
  std::vector<std::string> unresolved() const;
  // Throws as load() when there are such keys, with all of them. Those that the caller gives later
  // are left: batch sizes wait for batch_sizes(), total_num_steps for make_schedule().
  void check_resolved() const;
  // The three batch sizes on that many ranks, whatever number they were derived for before.
  BatchSizes batch_sizes(int64_t ranks) const;

  // The keys of the file itself; null for a Plan built in code.
  const config::Settings* settings() const { return settings_.get(); }
  // The DeepSpeed keys of an Accelerate file of type DEEPSPEED, with those of its
  // deepspeed_config_file.
  const config::Settings* deepspeed() const { return deepspeed_.get(); }

  // Every key of the family with value and origin, as `config explain --json` and run.json.
  std::string effective_json() const;

 private:
  friend class config::PlanMaker;

  std::vector<Problem> warnings_;
  std::shared_ptr<const config::Settings> settings_;
  std::shared_ptr<const config::Settings> deepspeed_;
};

// What `config check` shows: the Plan, as far as it could be made, and all problems.
struct PlanReading {
  Plan plan{};
  Problems problems{};
};

PlanReading read_plan(std::string_view text, const std::string& name,
                      const PlanOptions& options = {});

}  // namespace fullshard
