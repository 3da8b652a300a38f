// SPDX-License-Identifier: Apache-2.0
// Makes the Plan from the keys of a family. One source file per family fills in its keys.
#pragma once

#include <span>
#include <string_view>

#include "fullshard/config/plan.h"

namespace fullshard::config {

class PlanMaker {
 public:
  PlanMaker(const PlanOptions& options, Problems& problems)
      : options_(options), problems_(problems) {}

  Plan make(std::string_view text, const std::string& name);
  // --fsdp's words over an optional fsdp_config.
  Plan make_from_words(const std::string& words, const std::string& config_file);
  // The FSDP_* and ACCELERATE_* variables that `accelerate launch` sets.
  Plan make_from_environment();
  // Without a configuration: FULL_SHARD over the model's own blocks; stage 3 when flags or --set
  // name DeepSpeed's keys.
  Plan make_default();

 private:
  Plan make_from(Settings settings);
  Plan make_unsharded_by_accelerate();
  void put_launched_precision(Settings& settings);
  void apply_launched_fp8(Plan& plan) const;
  void apply_overrides(Settings& settings);
  void apply_set(Settings& settings, const std::string& path, const std::string& value);

  void fill_from_deepspeed(Plan& plan, Settings deepspeed);
  // --lr sets the rate in effect: the schedule's, if it states one.
  void follow_lr_flag(Settings& deepspeed);
  void settle_batch(Settings& deepspeed, std::optional<int64_t> ranks);
  void fill_zero(Plan& plan, const Settings& settings);
  void fill_logging(LoggingPlan& logging, const Settings& settings);
  void fill_offload(Plan& plan, const Settings& settings);
  void fill_optimizer(Plan& plan, const Settings& settings);
  void fill_scheduler(Plan& plan, const Settings& settings);
  void fill_precision(Plan& plan, const Settings& settings);
  void fill_fp8(Plan& plan, const Settings& settings, const Origin& origin);

  void fill_from_accelerate(Plan& plan, Settings& settings);
  void fill_launch(Plan& plan, const Settings& settings);
  void add_expert_layers(Plan& plan, const Settings& settings);
  void fill_fsdp(Plan& plan, Settings& settings);
  void fill_parallelism(Plan& plan, const Settings& settings);
  Settings deepspeed_of_accelerate(const Settings& settings);
  void show_resolved(Settings& settings, const Settings& deepspeed);
  static void show_flags(const Settings& inner, Settings& settings);
  void fill_inner_precision(Settings& inner, const Settings::Entry& precision);
  Settings read_deepspeed_file(const Settings& settings);

  void fill_from_trainer(Plan& plan, Settings& settings);
  void fill_fsdp_words(Plan& plan, Settings& settings);
  void put_word(Settings& settings, const Origin& fsdp, std::string_view word,
                std::string_view path, ConfigNode value);
  void fill_xla(Plan& plan, const Settings& settings);

  void error(const Origin& origin, std::string message, std::string suggestion = "");
  void warn(const Origin& origin, std::string message, std::string suggestion = "");

  const PlanOptions& options_;
  Problems& problems_;
  std::vector<FlagValue> left_flags_;  // those that no key of the file takes
  std::string file_;                   // the file that is read
  Family family_ = Family::accelerate;
  bool names_type_ = false;             // the file has distributed_type, valid or not
  std::optional<Origin> launched_fp8_;  // ACCELERATE_MIXED_PRECISION, where DeepSpeed's keys count
};

// A variable that `accelerate launch` exports, and the key of its files with the same meaning.
struct AccelerateVariable {
  const char* name;
  std::string_view path;
};
std::span<const AccelerateVariable> accelerate_variables();
bool is_from_accelerate();        // its launcher described the run in variables
bool is_sharded_by_accelerate();  // and they name FSDP or DeepSpeed

// Words of a comma-separated list, without blanks around them.
std::vector<std::string> split_names(const std::vector<std::string>& texts);

}  // namespace fullshard::config
