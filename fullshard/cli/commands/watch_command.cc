// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/watch_command.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/printable.h"
#include "fullshard/report/progress_line.h"
#include "fullshard/report/records/metrics_tail.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/report/records/run_lock.h"
#include "fullshard/report/records/run_record.h"
#include "fullshard/report/watch_view.h"

namespace fullshard::cli {
namespace {

constexpr int kInterruptedStatus = 130;
// The longest wait before the clock is redrawn and the owner checked: a killed owner writes
// nothing.
constexpr int kLookMilliseconds = 1000;

// Sleeps until something in the folder is written. If the kernel has no watches left, or another
// host writes the folder, only the time limit wakes it.
class FolderChanges {
 public:
  explicit FolderChanges(const std::string& folder)
      : descriptor_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    if (descriptor_ >= 0) {
      ::inotify_add_watch(descriptor_, folder.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO);
    }
  }
  ~FolderChanges() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderChanges(const FolderChanges&) = delete;
  FolderChanges& operator=(const FolderChanges&) = delete;

  void wait(int milliseconds) const {
    pollfd watched = {descriptor_, POLLIN, 0};
    if (::poll(&watched, descriptor_ >= 0 ? 1 : 0, milliseconds) <= 0) return;
    std::array<char, 4096> events = {};
    while (::read(descriptor_, events.data(), events.size()) > 0) {
    }
  }

 private:
  int descriptor_;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int columns_of_terminal() {
  winsize size{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

class RunWatcher {
 public:
  explicit RunWatcher(const std::string& folder)
      : folder_(folder),
        changes_(folder),
        tail_(folder + "/metrics.jsonl"),
        view_(folder),
        is_terminal_(::isatty(STDOUT_FILENO) != 0) {}

  int watch() {
    for (bool is_first = true;; is_first = false) {
      look();
      const auto fresh = tail_.read();
      if (tail_.has_restarted()) view_.clear();
      for (const StepRecord& step : fresh) view_.add(step);
      if (is_terminal_) {
        draw();
      } else if (!fresh.empty()) {
        // Of the steps from before watching began, the last one is enough.
        print(is_first ? std::vector(fresh.end() - 1, fresh.end()) : fresh);
      }
      if (record_.status != RunStatus::running) return end();
      changes_.wait(kLookMilliseconds);
    }
  }

 private:
  // Checks the owner first: one that ends in between has recorded its end.
  void look() {
    const report::Ownership owner = report::find_owner(folder_);
    record_ = read_run_record(folder_ + "/run.json");
    if (record_.status == RunStatus::running && owner.state == report::OwnerState::gone) {
      record_.status = RunStatus::failed;
      record_.problem = owner.owner.death();
    }
  }

  double silence() const {
    return std::max(0.0,
                    seconds_now() - std::max(report::last_write_time(folder_ + "/run.json"),
                                             report::last_write_time(folder_ + "/metrics.jsonl")));
  }

  void draw() {
    const auto lines = view_.lines(record_, silence(), columns_of_terminal() - 1);
    std::string text = num_drawn_ > 0 ? fmt::format("\x1b[{}A\x1b[J", num_drawn_) : "";
    for (const std::string& line : lines) text += line + "\n";
    num_drawn_ = lines.size();
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  void print(const std::vector<StepRecord>& steps) const {
    constexpr int kAnyWidth = 1 << 20;
    for (const StepRecord& step : steps) {
      const bool is_last = step.step == view_.last()->step;
      fmt::print("{}\n",
                 report::progress_text(
                     step, record_.num_steps,
                     is_last ? view_.seconds_left(record_.num_steps) : std::nullopt, kAnyWidth));
    }
    std::fflush(stdout);
  }

  int end() const {
    const std::string problem = base::printable(record_.problem, 2000);
    fmt::print("{}: {}{}\n", base::printable(folder_), name_of(record_.status),
               problem.empty() ? "" : ": " + problem);
    std::fflush(stdout);
    if (record_.status == RunStatus::finished) return 0;
    return record_.status == RunStatus::interrupted ? kInterruptedStatus : 1;
  }

  std::string folder_;
  FolderChanges changes_;
  report::MetricsTail tail_;
  report::WatchView view_;
  bool is_terminal_;
  RunRecord record_;
  size_t num_drawn_ = 0;  // lines
};

}  // namespace

WatchCommand::WatchCommand(CLI::App& app)
    : command_(app.add_subcommand("watch", "a running run in the terminal, until it ends")) {
  command_->add_option("folder", folder_, "the run's --output folder")->required();
}

bool WatchCommand::was_chosen() const { return command_->parsed(); }

int WatchCommand::run() const {
  if (!base::is_file(folder_ + "/run.json")) {
    fail_as(ErrorKind::input, "watch: '{}' holds no run; give the --output folder of one",
            base::printable(folder_));
  }
  return RunWatcher(folder_).watch();
}

}  // namespace fullshard::cli
