// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_log.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/text_file.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/nn/class_name.h"
#include "fullshard/report/html_report.h"
#include "fullshard/report/progress_line.h"
#include "fullshard/report/records/metrics_file.h"
#include "fullshard/report/records/run_lock.h"
#include "fullshard/report/records/run_start.h"
#include "fullshard/report/records/run_totals.h"
#include "fullshard/train/run/peak_memory.h"
#include "fullshard/train/run/run_facts.h"
#include "fullshard/train/run/step_clock.h"
#include "fullshard/train/run/step_totals.h"
#include "fullshard/train/run/trainer.h"

namespace fullshard {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::string settings_json(const RunLogOptions& options) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::object();
  for (const auto& [name, value] : options.settings) {
    rows[name] = {{"value", value}, {"origin", "program"}};
  }
  return rows.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void prepare_folder(const RunLogOptions& options) {
  const std::string& folder = options.output;
  const bool resumes = options.first_step > 0;
  const bool has_run = base::find_text_file(folder + "/run.json").has_value();
  if (has_run && !resumes && !options.overwrite) {
    fail_as(ErrorKind::usage,
            "{}: holds a run already; choose another output, set overwrite, or go on from its "
            "checkpoint with first_step",
            folder);
  }
  if (!resumes) report::remove_run_records(folder);
}

// Loss and tokens of all ranks, an evaluation's loss where there is one, and the most that a rank
// held: one message.
void add_totals(const World& world, const OwnStep& own, StepRecord& record) {
  const int size = world.size();
  const train::StepTotals totals(
      world.communicator(),
      {own.loss, static_cast<double>(own.tokens), own.eval_loss.value_or(0),
       own.eval_loss ? 1.0 : 0.0, static_cast<double>(train::peak_resident_bytes()),
       static_cast<double>(memory::device_memory(world.device()).peak_bytes)},
      "run log");
  check(totals.sum(3) == 0 || totals.sum(3) == size,
        "RunLog: step {}: {} of {} ranks gave an eval_loss; give it on all of them", own.step,
        totals.sum(3), size);
  record.loss = totals.sum(0) / size;
  record.tokens = static_cast<int64_t>(totals.sum(1));
  if (own.eval_loss) record.eval_loss = totals.sum(2) / size;
  record.host_peak_bytes = static_cast<int64_t>(totals.largest(4));
  record.device_peak_bytes = static_cast<int64_t>(totals.largest(5));
}

}  // namespace

// Where the step's seconds begin, and where they ended if the loop said so.
struct RunLog::Clock {
  explicit Clock(const Recorder& recorder) : clock(recorder) {}

  void read(StepRecord& record) const {
    record.step_s = clock.seconds();
    record.exposed_comm_s = clock.exposed();
    record.comm_s = clock.communicating();
  }

  train::StepClock clock;
  std::optional<StepRecord> ended = {};  // its times
};

struct RunLog::Files {
  Files(const ShardedModel& model, const RunLogOptions& options)
      : Files(model, options, base::LauncherEnvironment::of_process()) {}

  Files(const ShardedModel& model, const RunLogOptions& options,
        const base::LauncherEnvironment& launcher)
      : folder(options.output), lock(report::RunLock::inherited_or_new(options.output, launcher)) {
    prepare_folder(options);
    record = train::started_record(model, options.command);
    record.model.name = options.model;
    record.model.architecture = nn::class_name_of(model.module());
    record.configuration = settings_json(options);
    record.num_steps = options.num_steps;
    if (options.first_step > 0) record.first_step = options.first_step;
    write();
    metrics =
        std::make_unique<report::MetricsWriter>(folder + "/metrics.jsonl", options.first_step);
    totals = metrics->kept().last() ? metrics->kept() : report::RunTotals(record.first_step);
    seconds_before = totals.seconds();
    report::ProgressOptions how = train::run_progress(launcher);
    if (options.quiet) how.mode = report::ProgressMode::silent;
    how.num_steps = options.num_steps;
    how.first_step = options.first_step;
    how.steps_per_print = options.steps_per_print;
    progress = std::make_unique<report::ProgressLine>(how);
  }

  void write() const { write_run_record(folder + "/run.json", record); }

  void add(const StepRecord& step) {
    constexpr auto kPageAge = std::chrono::seconds(10);
    totals.add(step);
    metrics->append(step);
    progress->step(step);
    if (SteadyClock::now() - page_written < kPageAge) return;
    write_page();
    page_written = SteadyClock::now();
  }

  void end(RunStatus status, const std::string& problem) {
    progress->clear();
    record.status = status;
    record.problem = problem;
    record.tokens = totals.tokens();
    record.ended = static_cast<int64_t>(std::time(nullptr));
    write();
    metrics.reset();
    write_page();
  }

  // What cannot be written now may be at the end; it is said once.
  void write_page() {
    const auto problem = report::try_html_report(folder);
    if (!problem || std::exchange(has_warned_of_page, true)) return;
    progress->log("warning: " + *problem);
  }

  void show_summary() const {
    const std::chrono::duration<double> elapsed = SteadyClock::now() - start;
    fmt::print("{}", report::summary_table(totals, {elapsed.count(), record.first_step.value_or(0)},
                                           {{"report", folder + "/report.html"}}));
    std::fflush(stdout);
  }

  std::string folder;
  report::RunLock lock;  // the folder has one owner at a time
  RunRecord record = {};
  report::RunTotals totals = {};  // of all steps that metrics.jsonl has
  double seconds_before = 0;      // inside those before first_step
  std::unique_ptr<report::MetricsWriter> metrics = {};
  std::unique_ptr<report::ProgressLine> progress = {};
  SteadyClock::time_point start = SteadyClock::now(), page_written = start;
  bool has_warned_of_page = false;
};

RunLog::RunLog(const ShardedModel& model, const RunLogOptions& options)
    : model_(model), options_(options), clock_(std::make_unique<Clock>(model.recorder())) {
  const World& world = model_.mesh().world();
  const auto open = [&] { files_ = std::make_unique<Files>(model_, options_); };
  engine::throw_alike(world.communicator(),
                      world.rank() == 0 ? engine::error_of(open) : std::nullopt, "RunLog");
}

RunLog::~RunLog() {
  if (!files_ || has_ended_) return;
  try {
    files_->end(RunStatus::failed, "the program left its loop before the run was finished");
  } catch (
      const std::exception&) {  // a destructor cannot say it; run.json goes on saying "running"
  }
}

void RunLog::check_goes_on() const {
  check(!has_ended_,
        "RunLog: {}: is finished already; a run that goes on needs a RunLog of its own",
        options_.output);
}

StepRecord RunLog::step(const OwnStep& own) {
  check_goes_on();
  end_step();
  StepRecord record = *clock_->ended;
  record.step = own.step;
  record.lr = own.lr;
  record.grad_norm = own.grad_norm;
  record.loss_scale = own.loss_scale;
  record.skipped = own.skipped;
  add_totals(model_.mesh().world(), own, record);
  record.tokens_per_s = static_cast<double>(record.tokens) / record.step_s;
  if (files_) files_->add(record);
  begin_step();
  return record;
}

void RunLog::begin_step() { clock_ = std::make_unique<Clock>(model_.recorder()); }

void RunLog::end_step() {
  if (clock_->ended) return;
  clock_->ended.emplace();
  clock_->read(*clock_->ended);
}

void RunLog::say(const std::string& line) {
  if (files_) files_->progress->log(line);
}

void RunLog::warn(const std::string& line) {
  if (!files_) return;
  files_->record.warnings.push_back(line);
  files_->progress->log("warning: " + line);
}

void RunLog::finish(RunStatus status, const std::string& problem) {
  check_goes_on();
  MemoryPlan memory = train::memory_of_all(model_);
  auto disk = train::disk_traffic_of_all(
      model_, files_ ? files_->totals.seconds() - files_->seconds_before : 0);
  has_ended_ = true;
  if (!files_) return;
  files_->record.memory = std::move(memory);
  files_->record.disk = std::move(disk);
  files_->end(status, problem);
  if (!options_.quiet && status != RunStatus::failed) files_->show_summary();
}

}  // namespace fullshard
