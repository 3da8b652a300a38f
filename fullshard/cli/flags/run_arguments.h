// SPDX-License-Identifier: Apache-2.0
// The flags of commands that run a model. The program in front and the one that links libtorch read
// the same words by the same table, so help and errors come at once and both agree.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/cli/flags/config_flags.h"
#include "fullshard/cli/flags/launch_flags.h"
#include "fullshard/config/run_options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fullshard::cli {

enum class RunKind { train, eval, compare, generate, estimate, tune, simulate, kernels, step };

// Options of `estimate`, and of `tune` for planning: available memory, and DeepSpeed's own table.
struct PlanningOptions {
  std::string device_memory{}, host_memory{};  // "80GB"; empty: this machine's
  bool deepspeed_table = false;
  bool sharding_factors = false;                       // a row for each divisor of the ranks
  std::string factors_cluster = {};                    // the cluster for these rows; empty: h100
  int64_t total_params = 0, largest_layer_params = 0;  // in place of a model
  int gpus_per_node = 0, nodes = 1;                    // 0: as many as ranks
};

// `tune`, and `train --auto`.
struct TuningOptions {
  bool is_auto = false;  // train: tune first
  double budget_minutes = 30;
  std::string from = "fast";         // or frugal
  std::string format = "deepspeed";  // or accelerate
  std::string disk{};                // folder for the rung that offloads to disk; empty: the output
  int64_t steps = 4;                 // per measurement
  int64_t max_micro_batch = 0;       // 0: 1024 on GPUs, 64 on CPUs
};

// Whether the flag sets what `tune` chooses or names a configuration file: the file that `tune`
// writes replaces both.
bool is_chosen_by_tune(std::string_view flag);

// `simulate`: which cluster, how many ranks, and where results go. `bench kernels` has the last
// three.
struct SimulationOptions {
  std::string cluster{};
  std::vector<int> ranks{};
  struct Override {
    std::string key, flag, value{};
  };
  std::vector<Override> overrides{};  // their value is empty unless the flag was given
  std::string kernels{};              // a table that bench kernels wrote
  std::string output{}, html{}, trace{};
};

// `bench step`.
struct StepBenchOptions {
  int64_t steps = 10;  // timed steps, after two that are not timed
  bool phases = false;
};

class RunArguments {
 public:
  RunArguments(CLI::App& app, RunKind kind);
  RunArguments(const RunArguments&) = delete;  // the parser writes into it
  RunArguments& operator=(const RunArguments&) = delete;

  bool was_chosen() const;
  bool was_given(std::string_view flag) const;  // without its dashes
  RunKind kind() const { return kind_; }
  std::string name() const;
  const RunOptions& options() const { return options_; }
  const PlanningOptions& planning() const { return planning_; }
  const TuningOptions& tuning() const { return tuning_; }
  const SimulationOptions& simulation() const { return simulation_; }
  const StepBenchOptions& step_bench() const { return step_bench_; }
  LaunchFlags& launch() { return launch_; }
  std::string device() const;  // cpu or cuda, as requested or as available
  std::string config_file() const { return config_.file(); }  // empty: none
  // The rank's local number that a launcher passes by a flag, in addition to the environment.
  std::optional<int> local_rank() const;

  // The flags that stand for keys of a configuration, as they were given.
  std::vector<FlagValue> setting_flags() const { return plan_options({}, {}).flags; }
  // All given flags as words of a command line, except those that `leaves_out` selects (names
  // without dashes).
  std::vector<std::string> words(
      const std::function<bool(std::string_view flag)>& leaves_out) const;

  // The configuration with these flags over it. `inputs` is what is known of the model;
  // `is_quiet` leaves out the note about the default file.
  Plan plan(std::optional<int64_t> ranks, const AutoInputs& inputs, bool is_quiet) const;

 private:
  void add_model();
  void add_timeouts();
  void add_data();
  void add_training();
  void add_checkpoints();
  CLI::Option* add_interval(const std::string& flag, StepInterval& interval,
                            const std::string& help);
  // A flag without a value that stands for a key of a configuration.
  CLI::Option* add_switch(const std::string& names, bool& is_on, const std::string& help);
  void add_monitors();
  void add_sharding();
  void add_evaluation();
  void add_output();
  void add_compare();
  void add_adapter();
  void add_lora();
  void add_generation();
  void add_search();
  void add_examples();
  void add_optimizer();
  void add_planning();
  void add_memory_limits();
  void add_tuning();
  void note_flags_of_auto();
  void add_simulation();
  void add_kernels();
  void add_step_bench();
  void add_graphs();
  bool is_plan() const;  // a run is planned, not started
  void drop_flags_of_ranks();
  PlanOptions plan_options(std::optional<int64_t> ranks, const AutoInputs& inputs) const;
  // `fallback` is the default that the help shows; empty: the help describes it.
  CLI::Option* add_setting(const std::string& flag, const std::string& help,
                           const std::string& fallback = "");

  CLI::App* command_;
  RunKind kind_;
  LaunchFlags launch_;
  ConfigFlags config_;
  RunOptions options_;
  PlanningOptions planning_;
  TuningOptions tuning_;
  SimulationOptions simulation_;
  StepBenchOptions step_bench_;
  bool recompute_ = false;
  int local_rank_ = -1;
  struct Setting {
    std::string flag;
    CLI::Option* option;
  };
  std::vector<Setting> settings_;  // flags that stand for keys of a configuration
};

// The flag's device, else the configuration's (use_cpu), else what is available.
std::string device_of_run(const std::string& flag, const std::optional<std::string>& configured,
                          bool has_gpus);

}  // namespace fullshard::cli
