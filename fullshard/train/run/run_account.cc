// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_account.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/config/explain.h"
#include "fullshard/config/headline.h"
#include "fullshard/report/html_report.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/tiers/wear.h"
#include "fullshard/train/run/run_facts.h"

namespace fullshard::train {
namespace {

constexpr int64_t kFewestStepsPerPrint = 10;
constexpr int64_t kUsualLines = 40;
constexpr auto kPageAge = std::chrono::seconds(10);  // of report.html while steps go on

std::string in(const RunOptions& options, const char* name) { return options.output + "/" + name; }

std::string wear_text(const DiskTraffic& disk) {
  return fmt::format("{} written; {}", format_bytes(disk.bytes_written),
                     tiers::wear_note(fmt::format("{}", fmt::join(disk.folders, "' and '")),
                                      static_cast<double>(disk.bytes_written_per_day)));
}

}  // namespace

RunAccount::RunAccount(const RunOptions& options, const std::vector<std::string>& command,
                       const base::LauncherEnvironment& launcher, const Plan& plan,
                       const LanguageModel& model, const ShardedModel& sharded, int64_t num_steps,
                       int64_t first_step, std::vector<PlannedTier> planned_memory,
                       const std::vector<config::EffectiveSetting>& settings)
    : options_(options),
      writes_(sharded.mesh().world().rank() == 0),
      settings_(run_settings_of(plan)),
      totals_(first_step) {
  if (!writes_) return;
  record_ = started_record(sharded, command);
  record_.model.name = options.model;
  record_.model.architecture = model.architecture();
  record_.configuration = config::with_settings(plan.effective_json(), settings);
  for (const Problem& warning : plan.warnings()) record_.warnings.push_back(warning.text());
  record_.num_steps = num_steps;
  record_.first_step = first_step;
  record_.memory.planned = std::move(planned_memory);
  write_run_record(in(options_, "run.json"), record_);
  metrics_ = std::make_unique<report::MetricsWriter>(in(options_, "metrics.jsonl"), first_step);
  if (metrics_->kept().last()) totals_ = metrics_->kept();
  seconds_before_ = totals_.seconds();
  monitors_ = report::open_monitors(
      {.tensorboard = settings_.tensorboard,
       .csv = settings_.csv_monitor,
       .run_folder = options_.output,
       .first_step = first_step,
       .samples_per_step = plan.batch_sizes(sharded.mesh().world().size()).global_batch});

  report::ProgressOptions progress = run_progress(launcher);
  if (options.quiet) progress.mode = report::ProgressMode::silent;
  progress.num_steps = num_steps;
  progress.first_step = first_step;
  progress.steps_per_print =
      settings_.steps_per_print.value_or(std::max(kFewestStepsPerPrint, num_steps / kUsualLines));
  progress_ = std::make_unique<report::ProgressLine>(progress);
  describe(plan, sharded, settings);
}

RunAccount::~RunAccount() = default;

void RunAccount::describe(const Plan& plan, const ShardedModel& sharded,
                          const std::vector<config::EffectiveSetting>& settings) {
  if (options_.quiet) return;
  const int ranks = sharded.mesh().world().size();
  const config::Explanation explanation = config::explain(plan, ranks);
  fullshard::base::say(options_.verbose ? explanation.text() : explanation.short_text());
  if (options_.verbose) {
    fullshard::base::say(config::settings_text(settings));
  } else {
    fullshard::base::say(
        fmt::format("(every value in effect: --verbose, or {})\n", in(options_, "run.json")));
  }
  fullshard::base::say(config::headline(plan, ranks) + "\n");
  fullshard::base::say(
      fmt::format("{}: {}, {} parameters, {} rank{} ({} replica{} of {} shard{}) on {}\n",
                  options_.model, record_.model.architecture, format_count(sharded.numel()),
                  record_.mesh.world, record_.mesh.world == 1 ? "" : "s", record_.mesh.replicas,
                  record_.mesh.replicas == 1 ? "" : "s", record_.mesh.shards,
                  record_.mesh.shards == 1 ? "" : "s", sharded.mesh().world().backend()));
  if (options_.verbose) fullshard::base::say(sharded.tree());
}

void RunAccount::say(const std::string& line) {
  if (writes_) progress_->log(line);
}

void RunAccount::warn(const std::string& line) {
  if (!writes_) return;
  record_.warnings.push_back(line);
  if (options_.quiet) {
    fullshard::base::say(fmt::format("warning: {}\n", line));
  } else {
    progress_->log("warning: " + line);
  }
}

void RunAccount::add(const StepRecord& record) {
  totals_.add(record);
  metrics_->append(record);
  add_to_monitors(record);
  progress_->step(record);
  const auto now = std::chrono::steady_clock::now();
  if (now - page_written_ < kPageAge) return;
  write_page();  // a browser that shows it reloads it
  page_written_ = now;
}

// What cannot be written now may be at the end; it is said once.
void RunAccount::write_page() {
  const auto problem = report::try_html_report(options_.output);
  if (problem && !std::exchange(has_warned_of_page_, true)) warn(*problem);
}

// What they tell is in metrics.jsonl too: one that fails does not end a run.
void RunAccount::add_to_monitors(const StepRecord& record) {
  std::erase_if(monitors_, [&](const std::unique_ptr<report::Monitor>& monitor) {
    try {
      monitor->add(record);
      return false;
    } catch (const Error& error) {
      warn(fmt::format("{}: {}; nothing more is written there", monitor->name(), error.what()));
      return true;
    }
  });
}

void RunAccount::take_memory(const ShardedModel& sharded) {
  MemoryPlan memory = memory_of_all(sharded);
  if (!writes_) return;
  memory.planned = std::move(record_.memory.planned);
  record_.memory = std::move(memory);
  write_run_record(in(options_, "run.json"), record_);
  if (settings_.shows_memory) show_memory();
}

void RunAccount::take_disk_traffic(const ShardedModel& sharded) {
  record_.disk = disk_traffic_of_all(sharded, totals_.seconds() - seconds_before_);
}

void RunAccount::show_memory() {
  for (size_t rank = 0; rank < record_.memory.ranks.size(); ++rank) {
    std::vector<std::string> parts;
    for (const MemoryShare& share : record_.memory.ranks[rank]) {
      parts.push_back(fmt::format("{} {}{}", share.purpose, format_bytes(share.bytes),
                                  share.tier == "device" ? "" : " (" + share.tier + ")"));
    }
    say(fmt::format("memory of rank {} at its peak: {}", rank, fmt::join(parts, ", ")));
  }
}

void RunAccount::finish(RunStatus status, const std::string& problem,
                        const std::string& checkpoint) {
  if (!writes_) return;
  progress_->clear();
  record_.status = status;
  record_.problem = problem;
  record_.checkpoint = checkpoint;
  record_.tokens = totals_.tokens();
  record_.ended = static_cast<int64_t>(std::time(nullptr));
  write_run_record(in(options_, "run.json"), record_);
  metrics_.reset();
  write_page();
}

void RunAccount::summarise(const std::vector<std::pair<std::string, std::string>>& places) {
  if (!writes_) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  if (options_.json) {
    nlohmann::json summary = {{"status", std::string(name_of(record_.status))},
                              {"steps", totals_.first_step() + totals_.num_steps()},
                              {"first_step", record_.first_step.value_or(0)},
                              {"skipped_steps", totals_.num_skipped()},
                              {"tokens", totals_.tokens()},
                              {"seconds", elapsed.count()},
                              {"output", options_.output}};
    if (totals_.last()) summary["loss"] = totals_.last()->loss;
    if (totals_.last_evaluation()) summary["eval_loss"] = totals_.last_evaluation()->loss;
    if (!record_.checkpoint.empty()) summary["checkpoint"] = record_.checkpoint;
    if (!record_.stopped_early.empty()) summary["stopped_early"] = record_.stopped_early;
    if (record_.disk) {
      summary["disk_bytes_written"] = record_.disk->bytes_written;
      summary["disk_bytes_written_per_day"] = record_.disk->bytes_written_per_day;
    }
    fmt::print("{}\n", summary.dump());
  } else if (!options_.quiet) {
    std::vector<std::pair<std::string, std::string>> rows;
    if (!record_.stopped_early.empty()) rows.emplace_back("stopped early", record_.stopped_early);
    if (record_.disk) rows.emplace_back("disk", wear_text(*record_.disk));
    rows.insert(rows.end(), places.begin(), places.end());
    fmt::print("{}", report::summary_table(
                         totals_, {elapsed.count(), record_.first_step.value_or(0)}, rows));
  }
  base::flush_standard_output();
}

}  // namespace fullshard::train
