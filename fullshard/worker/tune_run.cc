// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/tune_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>

#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/cli/commands/tune_command.h"
#include "fullshard/config/sharding_flags.h"
#include "fullshard/launch/devices.h"
#include "fullshard/memory/available_memory.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/report/records/run_lock.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/run_adapter.h"
#include "fullshard/tuning/batch_search.h"
#include "fullshard/tuning/ladder.h"
#include "fullshard/tuning/measured_rung.h"
#include "fullshard/tuning/random_tokens.h"
#include "fullshard/tuning/rung_config.h"
#include "fullshard/tuning/tune_page.h"
#include "fullshard/tuning/tune_record.h"
#include "fullshard/tuning/tune_text.h"
#include "fullshard/tuning/winning_config.h"
#include "fullshard/worker/own_command.h"
#include "fullshard/worker/plan_inputs.h"

namespace fullshard::worker {
namespace {

using tuning::MeasuredRung;
using tuning::PlannedRung;
using tuning::Rung;
using tuning::RungResult;
using TuneClock = std::chrono::steady_clock;

constexpr int kTuneInterrupted = 130;
constexpr int64_t kLargestBatchOnGpus = 1024;
constexpr int64_t kLargestBatchOnCpus = 64;
// Seconds to start a run, before one was measured.
constexpr double kUsualStartSeconds = 5;
// What a measurement that was started in time may take beyond the budget.
constexpr double kLeewaySeconds = 60;

// A signal came; what is known is in the record.
struct TuneInterruption {};

// Flags of `train` that do not matter for a few steps, or that a measurement sets itself.
bool is_left_out_of_trials(std::string_view flag) {
  constexpr std::array kLeftOut = {
      "budget",        "from",       "format",       "disk",           "measure-steps",
      "device-memory", "output",     "json",         "quiet",          "max-micro-batch",
      "host-memory",   "verbose",    "overwrite",    "steps",          "epochs",
      "eval-data",     "eval-every", "eval-batches", "eval-precision", "no-save-model",
      "keep-best",     "keep",       "restore-best", "save-every",     "async-save",
      "resume",        "log-every",  "max-restarts", "log-dir",        "tee",
      "ranks",         "device",     "local-rank",   "num-processes",  "no-plan",
      "trace"};
  return cli::is_chosen_by_tune(flag) ||
         std::find(kLeftOut.begin(), kLeftOut.end(), flag) != kLeftOut.end();
}

int stage_in(const ShardingPlan& sharding) {
  if (*sharding.stage) return static_cast<int>(**sharding.stage);
  const std::string strategy = *config::strategy_in_effect(sharding);
  if (strategy == "NO_SHARD") return 0;
  return strategy == "SHARD_GRAD_OP" ? 2 : 3;
}

const std::string& without_left_folders(const std::string& path) {
  tuning::remove_left_folders(path);
  report::remove_unfinished_files(path, {"tune.json"});
  return path;
}

// One command's parts. Signals first: threads that come later must not get them.
class TuneRun : public tuning::Trials {
 public:
  explicit TuneRun(cli::RunArguments& arguments)
      : arguments_(arguments),
        options_(arguments.options()),
        own_(arguments.tuning()),
        device_name_(arguments.device()),
        ranks_(num_ranks()),
        source_(find_model(options_.model)),
        plan_(arguments.plan(ranks_, inputs(), options_.json || options_.quiet)),
        lock_(options_.output),
        folder_(without_left_folders(options_.output)) {
    const auto model = train::make_planned_model(source_, options_);
    sequence_length_ = planned_sequence_length(options_, *model);
    vocabulary_ = model->vocabulary();
    const bool is_causal = !model->is_masked() && !model->is_encoder_decoder();
    if (options_.data.empty() && !is_causal) {
      fail_as(ErrorKind::usage,
              "tune: {} cannot be measured with random tokens; give --data, as for train",
              model->architecture());
    }
    limits_ = limits_of(arguments.planning(), device(), ranks_);
    // Runs of the ladder follow each other, so each may use all that is free now.
    const bool is_told = !arguments.planning().device_memory.empty();
    if (!device().is_cpu() && !is_told) limits_.device_bytes = memory::available_bytes(device());
    read_flags();
    base_.disk = absolute_disk();
  }

  int run() {
    tuning::TuneRecord record(options_.output + "/tune.json", question(), options_.overwrite);
    record.set_status("running");
    tuning::RecordedTrials trials(*this, record);
    say(tuning::table_head());
    try {
      conclude(tuning::climb(climb_options(), trials), record);
    } catch (const TuneInterruption&) {
      record.set_status("interrupted");
      base::say(fmt::format("interrupted; the same command continues from {}\n", record.path()));
      return kTuneInterrupted;
    }
    return 0;
  }

  std::string config(const Rung& rung) override {
    std::string text = tuning::rung_config(base_, rung);
    plan_of(text);  // reports settings that contradict each other
    return text;
  }

  PlannedRung plan(const Rung& rung) override {
    stop_if_asked();
    const Plan plan = plan_of(tuning::rung_config(base_, rung));
    try {
      const Estimate result = estimate(train::make_planned_model(source_, options_), plan,
                                       {.ranks = ranks_,
                                        .device = device(),
                                        .sequence_length = sequence_length_,
                                        .target_length = options_.target_length,
                                        .reduce_once = options_.reduce_once,
                                        .label_smoothing = options_.label_smoothing});
      const auto verdict = planning::judge(result, plan, limits_);
      return {.is_known = true,
              .fits = verdict.fits,
              .bytes = result.on(tiers::Tier::device).peak_bytes,
              .why = verdict.fits ? "" : verdict.why,
              .changes = verdict.changes};
    } catch (const std::exception& problem) {
      return {.why = fmt::format("not planned: {}", problem.what())};
    }
  }

  MeasuredRung measure(const Rung& rung, const std::string& config) override {
    stop_if_asked();
    const auto start = TuneClock::now();
    report::write_whole_file(folder_.file("rung.json"), config);
    const auto end = tuning::run_trial({.words = trial_words(config),
                                        .output = folder_.file("run"),
                                        .on_gpus = device().is_cuda(),
                                        .device_bytes = limits_.device_bytes,
                                        .patience_s = patience()},
                                       signals_);
    if (end.interrupted_by != 0) throw TuneInterruption{};
    const std::chrono::duration<double> taken = TuneClock::now() - start;
    if (end.measured.fits) {
      const double steps_s = seconds_of_steps(config, end.measured.tokens_per_s);
      start_seconds_ = std::max(0.0, taken.count() - steps_s);
      has_measured_ = true;
    } else if (!has_measured_ && (end.status == 2 || end.status == 4) &&
               rung.offloaded != tuning::Offloaded::to_disk) {
      // This is not about the rung: the run itself is invalid.
      fail_as(static_cast<ErrorKind>(end.status), "tune: {}: {}", rung.title(), end.measured.why);
    }
    return end.measured;
  }

  // The first measurement is made in any case.
  bool has_time(const Rung& rung, std::optional<double> tokens_per_s) override {
    if (!has_measured_) return true;
    const double left = seconds_left();
    if (!tokens_per_s || left <= 0) return left > 0;
    return start_seconds_ + seconds_of_steps(tuning::rung_config(base_, rung), *tokens_per_s) <
           left;
  }

  void note(const RungResult& result) override {
    say(tuning::table_line(result));
    known_.results.push_back(result);
    known_.winner = tuning::fastest_of(known_.results);
    report::write_whole_file(options_.output + "/tune.html", tuning::tune_page(known_, title()));
  }

 private:
  at::Device device() const {
    return device_name_ == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  }

  int num_ranks() {
    auto& launch = arguments_.launch();
    launch.take(arguments_.plan(std::nullopt, {}, true).launch);
    launch.set_default_ranks(device_name_ == "cuda" ? std::max(launch::num_visible_gpus(), 1) : 1);
    return launch.world_size();
  }

  AutoInputs inputs() const { return {.hidden_size = source_.hidden_size()}; }

  bool has_flag(std::initializer_list<std::string_view> names) const {
    const auto flags = arguments_.setting_flags();
    return std::any_of(flags.begin(), flags.end(), [&](const FlagValue& flag) {
      return std::find(names.begin(), names.end(), flag.flag) != names.end();
    });
  }

  void read_flags() {
    base_.text = tuning::base_config(plan_);
    base_.keeps_stage = has_flag({"--zero-stage", "--strategy", "--sharding-factor"});
    base_.keeps_recompute = has_flag({"--recompute"});
    base_.keeps_offload = has_flag({"--offload"});
    for (const FlagValue& flag : arguments_.setting_flags()) {
      if (!cli::is_chosen_by_tune(flag.flag.substr(2))) kept_flags_.push_back(flag);
    }
    if (const auto wrap = cli::wrap_flag(plan_.wrap)) {
      kept_flags_.push_back(*wrap);
      wrap_words_.push_back(fmt::format("--wrap={}", wrap->value));
    }
  }

  std::string absolute_disk() const {
    const std::string& folder = own_.disk.empty() ? options_.output : own_.disk;
    char whole[PATH_MAX];
    if (::realpath(folder.c_str(), whole) == nullptr) {
      fail_as(ErrorKind::usage, "--disk: {} is not a folder", folder);
    }
    return whole;
  }

  tuning::ClimbOptions climb_options() const {
    tuning::LadderOptions there{.ranks = ranks_,
                                .on_gpus = device().is_cuda(),
                                .keeps_recompute = base_.keeps_recompute,
                                .keeps_offload = base_.keeps_offload,
                                .keeps_precision = has_flag({"--precision"}),
                                .is_sixteen_bit = *plan_.precision.bf16 || *plan_.precision.fp16};
    if (base_.keeps_stage) there.stage = stage_in(plan_.sharding);
    tuning::ClimbOptions climb{.from_frugal = own_.from == "frugal"};
    if (has_flag({"--micro-batch"})) {
      climb.batches = {plan_.batch_sizes(ranks_).micro_batch};
    } else {
      const int64_t usual = device().is_cuda() ? kLargestBatchOnGpus : kLargestBatchOnCpus;
      climb.batches =
          tuning::possible_batches(own_.max_micro_batch > 0 ? own_.max_micro_batch : usual,
                                   tuning::examples_per_step(base_.text, ranks_));
    }
    there.first_batch = climb.batches.front();
    climb.rungs = tuning::ladder(there);
    return climb;
  }

  Plan plan_of(const std::string& config) const {
    return Plan::parse(
        config, "tune",
        {.flags = kept_flags_, .ranks = ranks_, .device = device_name_, .inputs = inputs()});
  }

  // What the numbers depend on, in addition to the configuration of each rung.
  std::string question() const {
    const auto words = arguments_.words(is_left_out_of_trials);
    return fmt::format(
        "train {} --ranks={} --device={} --device-memory={} --host-memory={} "
        "--measure-steps={}",
        fmt::join(words, " "), ranks_, device_name_, limits_.device_bytes.value_or(0),
        limits_.host_bytes.value_or(0), own_.steps);
  }

  std::vector<std::string> trial_words(const std::string& config) {
    std::vector<std::string> words = {own_command(), "train"};
    const auto own = arguments_.words(is_left_out_of_trials);
    words.insert(words.end(), own.begin(), own.end());
    words.insert(words.end(), wrap_words_.begin(), wrap_words_.end());
    words.insert(
        words.end(),
        {"--config=" + folder_.file("rung.json"), "--output=" + folder_.file("run"),
         fmt::format("--steps={}", own_.steps), fmt::format("--ranks={}", ranks_),
         "--device=" + device_name_, "--no-save-model", "--overwrite", "--quiet", "--no-plan"});
    if (options_.data.empty()) words.push_back("--data=" + random_tokens(config));
    return words;
  }

  int64_t examples_of_step(const std::string& config) const {
    return plan_of(config).batch_sizes(ranks_).global_batch;
  }

  // One step's examples; a longer run uses them again.
  std::string random_tokens(const std::string& config) {
    std::string path = folder_.file("random.tokens");
    const int64_t needed = examples_of_step(config) * sequence_length_ + 1;
    if (needed > num_random_tokens_) {
      tuning::write_random_tokens(path, needed, vocabulary_);
      num_random_tokens_ = needed;
    }
    return path;
  }

  double seconds_of_steps(const std::string& config, double tokens_per_s) const {
    if (tokens_per_s <= 0) return 0;
    return static_cast<double>(own_.steps * examples_of_step(config) * sequence_length_) /
           tokens_per_s;
  }

  double seconds_left() const {
    const std::chrono::duration<double> passed = TuneClock::now() - begun_;
    return own_.budget_minutes * 60 - passed.count();
  }

  std::optional<double> patience() const {
    if (!has_measured_) return std::nullopt;
    return std::max(0.0, seconds_left()) + kLeewaySeconds;
  }

  void stop_if_asked() const {
    while (const auto number = signals_.next()) {
      if (*number != SIGCHLD) throw TuneInterruption{};
    }
  }

  // Standard output is for the result, which is not this with --json.
  void say(const std::string& text) const {
    if (options_.quiet) return;
    if (options_.json) return base::say(text);
    fmt::print("{}", text);
    base::flush_standard_output();
  }

  std::string title() const {
    return fmt::format("{} on {} {} rank{}", options_.model, ranks_,
                       device().is_cuda() ? "GPU" : "CPU", ranks_ == 1 ? "" : "s");
  }

  void conclude(const tuning::Climbed& climbed, tuning::TuneRecord& record) const {
    if (climbed.winner) {
      const RungResult& winner = climbed.results[*climbed.winner];
      const auto files = tuning::write_winning_config(
          {.text = winner.config, .ranks = ranks_, .on_gpus = device().is_cuda()},
          own_.format == "accelerate" ? tuning::ConfigFormat::accelerate
                                      : tuning::ConfigFormat::deepspeed,
          options_.output);
      record.set_status("done", winner.rung.title());
      say(fmt::format("{}\nconfiguration {}, table {}/tune.html\n", tuning::choice_text(climbed),
                      files.front(), options_.output));
    } else {
      record.set_status("nothing fits");
    }
    if (options_.json) fmt::print("{}\n", tuning::rungs_json(climbed));
    base::flush_standard_output();
    if (!climbed.winner) fail_as(ErrorKind::no_fit, "{}", tuning::nothing_fits_text(climbed));
  }

  const launch::Signals signals_;
  const TuneClock::time_point begun_ = TuneClock::now();
  cli::RunArguments& arguments_;
  const RunOptions& options_;
  const cli::TuningOptions& own_;
  const std::string device_name_;
  const int ranks_;
  const ModelSource source_;
  const Plan plan_;
  const report::RunLock lock_;
  const tuning::PrivateFolder folder_;
  planning::MemoryLimits limits_;
  tuning::ConfigBase base_;
  std::vector<FlagValue> kept_flags_;  // that no rung changes
  std::vector<std::string> wrap_words_;
  int64_t sequence_length_ = 0, vocabulary_ = 0, num_random_tokens_ = 0;
  double start_seconds_ = kUsualStartSeconds;
  bool has_measured_ = false;
  tuning::Climbed known_;  // so far, for the page
};

}  // namespace

int run_tune(cli::RunArguments& arguments) { return TuneRun(arguments).run(); }

}  // namespace fullshard::worker
