// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/measured_rung.h"

#include <fmt/format.h>
#include <ftw.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/launcher_environment.h"
#include "fullshard/launch/child_process.h"
#include "fullshard/launch/keeper.h"
#include "fullshard/report/records/metrics_file.h"

namespace fullshard::tuning {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kFolderPrefix = "trial-";
constexpr int kPollMilliseconds = 200;
// A run that was told to end finishes its step first.
constexpr std::chrono::seconds kPatienceWithEnd{20};

// The environment of this process, and the variable that tells a run that it is only measured.
std::vector<std::string> environment_of(const TrialCommand& command) {
  using base::LauncherEnvironment;
  const std::string told = fmt::format("{}=", LauncherEnvironment::kMeasured);
  std::vector<std::string> variables;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with(told)) variables.emplace_back(*variable);
  }
  variables.push_back(told + (command.times_phases ? LauncherEnvironment::kMeasuredPhases
                                                   : LauncherEnvironment::kMeasuredSteps));
  return variables;
}

// Standard output is for the result of the measurement: a log that is shown comes without it.
std::vector<std::string> words_of(const TrialCommand& command) {
  if (!command.shows_log) return command.words;
  std::vector<std::string> words = {"sh", "-c", R"(exec "$0" "$@" > /dev/null)"};
  words.insert(words.end(), command.words.begin(), command.words.end());
  return words;
}

bool is_interruption(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP;
}

// The last error that it printed, without the word.
std::string error_line(const launch::ChildOutput& output) {
  constexpr std::string_view kWord = "error: ";
  const auto& lines = output.last_lines();
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (line->starts_with(kWord)) return line->substr(kWord.size());
  }
  return lines.empty() ? "it printed no error" : lines.back();
}

// libtorch adds half a page about its allocator.
std::string first_sentence(const std::string& text) {
  constexpr std::string_view kTold = "Tried to allocate ";
  const size_t told = text.find(kTold);
  return told == std::string::npos ? text : text.substr(0, text.find(". ", told));
}

bool speaks_of_memory(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  constexpr std::array kSigns = {"out of memory", "killed by signal 9", "can't allocate memory",
                                 "cannot allocate memory", "bad_alloc"};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](const char* sign) { return text.find(sign) != std::string::npos; });
}

// Watches one child until it has ended.
class TrialWatch {
 public:
  TrialWatch(const TrialCommand& command, const launch::Signals& signals)
      : command_(command),
        signals_(signals),
        child_({.name = "trial",
                .command = words_of(command),
                .environment = environment_of(command),
                .output = {.shown = command.shows_log}},
               keeper_) {}

  void wait() {
    const auto start = Clock::now();
    while (!child_.has_just_ended()) {
      wait_for_news();
      for (const size_t stream : {0, 1}) {
        while (child_.pass_output(stream)) {
        }
      }
      while (const auto number = signals_.next()) {
        if (is_interruption(*number)) end_child(*number);
      }
      const std::chrono::duration<double> passed = Clock::now() - start;
      if (command_.patience_s && passed.count() > *command_.patience_s && !ending_since_) {
        is_late_ = true;
        end_child(0);
      }
      if (ending_since_ && Clock::now() - *ending_since_ > kPatienceWithEnd) child_.signal(SIGKILL);
    }
    child_.pass_rest();
  }

  const launch::ChildProcess& child() const { return child_; }
  int interrupted_by() const { return interrupted_by_; }
  bool is_late() const { return is_late_; }

 private:
  void wait_for_news() const {
    std::array<pollfd, 3> watched = {{{signals_.descriptor(), POLLIN, 0},
                                      {child_.outputs()[0], POLLIN, 0},
                                      {child_.outputs()[1], POLLIN, 0}}};
    ::poll(watched.data(), watched.size(), kPollMilliseconds);
  }

  // A second signal ends it at once.
  void end_child(int number) {
    child_.signal(ending_since_ ? SIGKILL : SIGTERM);
    if (!ending_since_) ending_since_ = Clock::now();
    if (number != 0) interrupted_by_ = number;
  }

  const TrialCommand& command_;
  const launch::Signals& signals_;
  const launch::Keeper keeper_;
  launch::ChildProcess child_;
  std::optional<Clock::time_point> ending_since_;
  int interrupted_by_ = 0;
  bool is_late_ = false;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The first step pays for what the others find: order of units, buffers, files in memory. The
// median, because the machine may be busy with something else too.
MeasuredRung measurement_in(const TrialCommand& command) {
  const auto reading = report::read_metrics(command.output + "/metrics.jsonl");
  MeasuredRung measured;
  std::vector<double> times;
  for (const StepRecord& step : reading.steps) {
    measured.peak_bytes = std::max(measured.peak_bytes,
                                   command.on_gpus ? step.device_peak_bytes : step.host_peak_bytes);
    if (step.step == 1 && reading.steps.size() > 1) continue;
    times.push_back(step.step_s / static_cast<double>(std::max<int64_t>(step.tokens, 1)));
  }
  const double seconds_per_token = median(std::move(times));
  measured.fits = seconds_per_token > 0;
  measured.tokens_per_s = measured.fits ? 1 / seconds_per_token : 0;
  if (!measured.fits) measured.why = "it recorded no steps";
  if (command.on_gpus && command.device_bytes && measured.peak_bytes > *command.device_bytes) {
    measured.fits = false;
    measured.why =
        fmt::format("does not fit: held {} on the device, only {} are available",
                    format_bytes(measured.peak_bytes), format_bytes(*command.device_bytes));
  }
  return measured;
}

int remove_entry(const char* path, const struct stat*, int, struct FTW*) { return ::remove(path); }

void remove_tree(const std::string& path) {
  ::nftw(path.c_str(), remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

}  // namespace

PrivateFolder::PrivateFolder(const std::string& parent)
    : path_(fmt::format("{}/{}XXXXXX", parent, kFolderPrefix)) {
  if (::mkdtemp(path_.data()) == nullptr) {
    fail_as(ErrorKind::input, "{}: cannot be created: {}", path_, std::strerror(errno));
  }
}

PrivateFolder::~PrivateFolder() { remove_tree(path_); }

void remove_left_folders(const std::string& parent) {
  for (const std::string& name : base::names_in_folder(parent)) {
    if (name.starts_with(kFolderPrefix)) remove_tree(parent + "/" + name);
  }
}

TrialEnd run_trial(const TrialCommand& command, const launch::Signals& signals) {
  TrialWatch watch(command, signals);
  watch.wait();
  TrialEnd end{.status = watch.child().exit_status(), .interrupted_by = watch.interrupted_by()};
  if (end.status == 0) {
    end.measured = measurement_in(command);
    return end;
  }
  const std::string said = error_line(watch.child().output());
  const bool was_killed = watch.child().was_killed_by(SIGKILL) || end.status == 128 + SIGKILL;
  end.measured.is_over = !watch.is_late();
  end.measured.why = watch.is_late() ? "ended: the budget is spent"
                     : was_killed || speaks_of_memory(said)
                         ? "out of memory: " + first_sentence(said)
                         : "failed: " + said;
  return end;
}

}  // namespace fullshard::tuning
