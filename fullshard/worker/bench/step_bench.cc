// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/bench/step_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/launch/devices.h"
#include "fullshard/launch/signals.h"
#include "fullshard/report/records/metrics_file.h"
#include "fullshard/report/records/number_text.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/run_adapter.h"
#include "fullshard/tuning/measured_rung.h"
#include "fullshard/tuning/random_tokens.h"
#include "fullshard/worker/bench/timing.h"
#include "fullshard/worker/own_command.h"
#include "fullshard/worker/plan_inputs.h"

namespace fullshard::worker {
namespace {

constexpr int kStepsBefore = 2, kBenchInterrupted = 130;
constexpr int64_t kLargestRunRecord = 64 * kMiB;

// Flags that are not passed on to the run as the user gave them.
bool is_of_the_bench(std::string_view flag) {
  constexpr std::array kOwn = {"steps", "phases", "json",         "quiet",
                               "ranks", "device", "num-processes"};
  return std::find(kOwn.begin(), kOwn.end(), flag) != kOwn.end();
}

// Medians of the steps that count.
struct StepSummary {
  int64_t steps = 0, tokens = 0, device_peak_bytes = 0, host_peak_bytes = 0;
  double seconds = 0, fastest = 0, slowest = 0, communication = 0, exposed = 0;
  std::optional<double> mfu = {};
  std::optional<PhaseTimes> phases = {};
  std::optional<int64_t> planned_bytes = {};  // of a device's peak
};

StepSummary summary_of(std::vector<StepRecord> records) {
  records.erase(records.begin(),
                records.begin() + std::min<ptrdiff_t>(std::ssize(records) - 1, kStepsBefore));
  const auto middle = [&](auto value) {
    std::vector<double> values;
    for (const auto& record : records) values.push_back(value(record));
    return median(std::move(values));
  };
  const auto [fastest, slowest] = std::minmax_element(
      records.begin(), records.end(),
      [](const auto& one, const auto& other) { return one.step_s < other.step_s; });
  StepSummary summary{.steps = std::ssize(records),
                      .tokens = records.back().tokens,
                      .seconds = middle([](const auto& step) { return step.step_s; }),
                      .fastest = fastest->step_s,
                      .slowest = slowest->step_s,
                      .communication = middle([](const auto& step) { return step.comm_s; }),
                      .exposed = middle([](const auto& step) { return step.exposed_comm_s; })};
  for (const auto& record : records) {
    summary.device_peak_bytes = std::max(summary.device_peak_bytes, record.device_peak_bytes);
    summary.host_peak_bytes = std::max(summary.host_peak_bytes, record.host_peak_bytes);
  }
  if (records.back().mfu) summary.mfu = middle([](const auto& step) { return *step.mfu; });
  if (records.back().phases) {
    summary.phases = PhaseTimes{
        .data_s = middle([](const auto& step) { return step.phases->data_s; }),
        .forward_s = middle([](const auto& step) { return step.phases->forward_s; }),
        .backward_s = middle([](const auto& step) { return step.phases->backward_s; }),
        .optimizer_s = middle([](const auto& step) { return step.phases->optimizer_s; })};
  }
  return summary;
}

class StepBench {
 public:
  explicit StepBench(cli::RunArguments& arguments)
      : arguments_(arguments),
        options_(arguments.options()),
        device_(arguments.device()),
        ranks_(num_ranks()),
        source_(find_model(options_.model)),
        plan_(arguments.plan(ranks_, {.hidden_size = source_.hidden_size()},
                             options_.json || options_.quiet)),
        folder_(temporary_folder()) {}

  int run() {
    const auto end = tuning::run_trial({.words = words(),
                                        .output = folder_.file("run"),
                                        .on_gpus = device_ == "cuda",
                                        .times_phases = arguments_.step_bench().phases,
                                        .shows_log = options_.verbose},
                                       signals_);
    if (end.interrupted_by != 0) return kBenchInterrupted;
    if (end.status != 0) {
      fail_as(kind_of(end.status), "bench step: {}", end.measured.why);
    }
    auto records = report::read_metrics(folder_.file("run/metrics.jsonl")).steps;
    check(!records.empty(), "bench step: the run recorded no steps");
    auto summary = summary_of(std::move(records));
    summary.planned_bytes = planned_bytes();
    fmt::print("{}", options_.json ? json(summary) : text(summary));
    base::flush_standard_output();
    return 0;
  }

 private:
  static std::string temporary_folder() {
    std::error_code problem;
    const auto folder = std::filesystem::temp_directory_path(problem);
    if (problem)
      fail_as(ErrorKind::input, "bench step: TMPDIR is not a folder: {}", problem.message());
    return folder.string();
  }

  static ErrorKind kind_of(int status) {
    return status >= 2 && status <= 4 ? static_cast<ErrorKind>(status) : ErrorKind::failed;
  }

  int num_ranks() {
    auto& launch = arguments_.launch();
    launch.take(arguments_.plan(std::nullopt, {}, true).launch);
    launch.set_default_ranks(device_ == "cuda" ? std::max(launch::num_visible_gpus(), 1) : 1);
    return launch.world_size();
  }

  std::vector<std::string> words() {
    std::vector<std::string> words = {own_command(), "train"};
    const auto own = arguments_.words(is_of_the_bench);
    words.insert(words.end(), own.begin(), own.end());
    words.insert(words.end(),
                 {"--output=" + folder_.file("run"),
                  fmt::format("--steps={}", arguments_.step_bench().steps + kStepsBefore),
                  fmt::format("--ranks={}", ranks_), "--device=" + device_, "--no-save-model"});
    if (!options_.verbose) words.emplace_back("--quiet");
    if (!arguments_.was_given("schedule")) words.emplace_back("--schedule=constant");
    if (options_.data.empty()) words.push_back("--data=" + random_tokens());
    return words;
  }

  // One step's examples; later steps use them again.
  std::string random_tokens() {
    const auto model = train::make_planned_model(source_, options_);
    if (model->is_masked() || model->is_encoder_decoder()) {
      fail_as(ErrorKind::usage,
              "bench step: {} cannot be trained on random tokens; give --data, as for train",
              model->architecture());
    }
    std::string path = folder_.file("random.tokens");
    const int64_t examples = plan_.batch_sizes(ranks_).global_batch;
    tuning::write_random_tokens(path, examples * planned_sequence_length(options_, *model) + 1,
                                model->vocabulary());
    return path;
  }

  std::optional<int64_t> planned_bytes() const {
    const std::string text =
        report::read_end_of_file(folder_.file("run/run.json"), kLargestRunRecord);
    const auto run = base::parse_json<nlohmann::json>(text);
    const auto* at = &run;
    for (const char* key : {"memory_plan", "planned", "device", "peak_bytes"}) {
      if (!at->is_object() || !at->contains(key)) return std::nullopt;
      at = &(*at)[key];
    }
    return at->is_number_integer() ? std::optional(at->get<int64_t>()) : std::nullopt;
  }

  std::string text(const StepSummary& step) const {
    const auto seconds = [](double value) { return report::format_seconds(value); };
    std::string text = fmt::format(
        "{} on {} {} rank{}, {} tokens a step\n\nstep           {:>10}   {} to {}, median of {}\n"
        "tokens/s       {:>10}   {} per rank\n",
        options_.model, ranks_, device_ == "cuda" ? "GPU" : "CPU", ranks_ == 1 ? "" : "s",
        step.tokens, seconds(step.seconds), seconds(step.fastest), seconds(step.slowest),
        step.steps, report::format_rate(rate(step)), report::format_rate(rate(step) / ranks_));
    if (step.mfu) {
      text += fmt::format("MFU            {:>10}   of what products alone reach here\n",
                          report::format_percent(*step.mfu));
    }
    if (step.phases) {
      text += fmt::format("forward        {:>10}\nbackward       {:>10}\nupdate         {:>10}\n",
                          seconds(step.phases->forward_s), seconds(step.phases->backward_s),
                          seconds(step.phases->optimizer_s));
    }
    if (ranks_ > 1) {
      text += fmt::format("communication  {:>10}   {} of it waited for\n",
                          seconds(step.communication), seconds(step.exposed));
    }
    const bool on_gpus = device_ == "cuda";
    text += fmt::format("memory         {:>10}   of a rank's {}",
                        format_bytes(on_gpus ? step.device_peak_bytes : step.host_peak_bytes),
                        on_gpus ? "GPU" : "process, libtorch with it");
    if (on_gpus && step.planned_bytes)
      text += fmt::format("; planned {}", format_bytes(*step.planned_bytes));
    return text + "\n";
  }

  std::string json(const StepSummary& step) const {
    nlohmann::ordered_json result = {{"model", options_.model},
                                     {"ranks", ranks_},
                                     {"device", device_},
                                     {"steps", step.steps},
                                     {"tokens", step.tokens},
                                     {"step_s", step.seconds},
                                     {"fastest_s", step.fastest},
                                     {"slowest_s", step.slowest},
                                     {"tokens_per_s", rate(step)},
                                     {"mfu", nullptr},
                                     {"comm_s", step.communication},
                                     {"exposed_comm_s", step.exposed},
                                     {"device_peak_bytes", step.device_peak_bytes},
                                     {"host_peak_bytes", step.host_peak_bytes},
                                     {"planned_bytes", nullptr}};
    if (step.mfu) result["mfu"] = *step.mfu;
    if (step.planned_bytes) result["planned_bytes"] = *step.planned_bytes;
    if (step.phases) {
      result["forward_s"] = step.phases->forward_s;
      result["backward_s"] = step.phases->backward_s;
      result["optimizer_s"] = step.phases->optimizer_s;
    }
    return result.dump() + "\n";
  }

  static double rate(const StepSummary& step) {
    return static_cast<double>(step.tokens) / step.seconds;
  }

  const launch::Signals signals_;  // first: threads that come later must not get them
  cli::RunArguments& arguments_;
  const RunOptions& options_;
  const std::string device_;
  const int ranks_;
  const ModelSource source_;
  const Plan plan_;
  const tuning::PrivateFolder folder_;
};

}  // namespace

int run_bench_step(cli::RunArguments& arguments) { return StepBench(arguments).run(); }

}  // namespace fullshard::worker
