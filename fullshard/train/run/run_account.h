// SPDX-License-Identifier: Apache-2.0
// What a run keeps of itself: run.json, metrics.jsonl, the progress line, the report. Rank 0
// writes; the other ranks only take part in what is collected from all.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/base/launcher_environment.h"
#include "fullshard/config/effective_settings.h"
#include "fullshard/config/plan.h"
#include "fullshard/config/run_options.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/report/monitor.h"
#include "fullshard/report/progress_line.h"
#include "fullshard/report/records/metrics_file.h"
#include "fullshard/report/records/run_record.h"
#include "fullshard/report/records/run_totals.h"
#include "fullshard/train/run_settings.h"

namespace fullshard::train {

class RunAccount {
 public:
  // Collective. `command` as it was typed; `first_step` steps were done before. Writes run.json and
  // says what is about to run.
  RunAccount(const RunOptions& options, const std::vector<std::string>& command,
             const base::LauncherEnvironment& launcher, const Plan& plan,
             const LanguageModel& model, const ShardedModel& sharded, int64_t num_steps,
             int64_t first_step = 0, std::vector<PlannedTier> planned_memory = {},
             const std::vector<config::EffectiveSetting>& settings = {});
  ~RunAccount();

  void say(const std::string& line);  // above the progress line; rank 0 only
  void warn(const std::string& line);
  void add(const StepRecord& record);  // rank 0 only

  // Collective: bytes by purpose of all ranks, for the report.
  void take_memory(const ShardedModel& sharded);
  // Collective, after the last step: what went to and from disks.
  void take_disk_traffic(const ShardedModel& sharded);
  // Before finish(): why the run is done before its last step.
  void stop_early(const std::string& reason) { record_.stopped_early = reason; }
  // Rank 0 writes run.json and report.html; `problem` is why it failed, or what interrupted it,
  // `checkpoint` the last that was written.
  void finish(RunStatus status, const std::string& problem, const std::string& checkpoint);
  // Rank 0, after finish(): what the run came to; `places` are where things are.
  void summarise(const std::vector<std::pair<std::string, std::string>>& places);

 private:
  void describe(const Plan& plan, const ShardedModel& sharded,
                const std::vector<config::EffectiveSetting>& settings);
  void add_to_monitors(const StepRecord& record);
  void show_memory();  // of every rank at its peak, by purpose
  void write_page();

  RunOptions options_;
  bool writes_;
  RunSettings settings_;
  RunRecord record_;
  report::RunTotals totals_;   // of all steps that metrics.jsonl has
  double seconds_before_ = 0;  // inside those before first_step
  bool has_warned_of_page_ = false;
  std::unique_ptr<report::MetricsWriter> metrics_;
  std::vector<std::unique_ptr<report::Monitor>> monitors_;
  std::unique_ptr<report::ProgressLine> progress_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point page_written_ = start_;
};

}  // namespace fullshard::train
