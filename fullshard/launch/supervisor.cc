#include "fullshard/launch/supervisor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

// Its last line says why; one whose output goes straight to the terminal is believed to say it.
bool has_explained(const ChildProcess& child) {
  const ChildOutput& output = child.output();
  if (!child.has_failed() || child.was_killed()) return false;
  if (output.last_lines().empty()) return output.is_shown();
  return output.last_lines().back().starts_with("error: ");
}

}  // namespace

using std::chrono::milliseconds;

Supervisor::Supervisor(Children children, const Signals& signals, milliseconds notice,
                       milliseconds grace, int control)
    : children_(std::move(children)),
      signals_(signals),
      notice_(notice),
      grace_(grace),
      control_(control) {}

LaunchResult Supervisor::run() {
  while (is_any_running()) {
    wait_for_something();
    while (const auto number = signals_.next()) {
      if (*number != SIGCHLD) pass_on(*number);
    }
    note_ended();
    if (deadline_ && Clock::now() >= *deadline_) press();
  }
  for (const auto& child : children_) child->pass_rest();
  if (!unshown_.empty() && !has_shown_error()) fmt::print(stderr, "{}\n", unshown_);
  if (result_.interrupted) {
    result_ = {.status = 130, .message = "interrupted", .interrupted = true};
  }
  return result_;
}

// Ranks that fail alike say the same: once is enough.
bool Supervisor::has_shown_error() const {
  return std::any_of(children_.begin(), children_.end(), [](const auto& child) {
    return child->output().is_shown() && has_explained(*child);
  });
}

bool Supervisor::is_any_running() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const auto& child) { return child->is_running(); });
}

void Supervisor::wait_for_something() {
  // poll ignores descriptors below zero.
  std::vector<pollfd> watched = {{signals_.descriptor(), POLLIN, 0}, {control_, POLLIN, 0}};
  for (const auto& child : children_) {
    for (const int output : child->outputs()) watched.push_back({output, POLLIN, 0});
  }
  // A second at most: a signal may be lost when another part of the program takes it.
  auto patience = milliseconds(1000);
  if (deadline_) {
    const auto left = std::chrono::duration_cast<milliseconds>(*deadline_ - Clock::now());
    patience = std::clamp(left, milliseconds(1), patience);
  }
  ::poll(watched.data(), watched.size(), static_cast<int>(patience.count()));
  if (watched[1].revents != 0) read_control();
  for (size_t place = 2; place < watched.size(); ++place) {
    if (watched[place].revents != 0) children_[place / 2 - 1]->pass_output(place % 2);
  }
}

void Supervisor::read_control() {
  char buffer[256];
  const ssize_t got = ::read(control_, buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {  // the launcher, or the connection to it, is gone
    control_ = -1;
    pass_on(SIGTERM);
    return;
  }
  said_.append(buffer, static_cast<size_t>(got));
  for (size_t end; (end = said_.find('\n')) != std::string::npos; said_.erase(0, end + 1)) {
    constexpr std::string_view kSignal = "signal ";
    if (said_.starts_with(kSignal)) pass_on(std::atoi(said_.c_str() + kSignal.size()));
  }
}

// From here on the job counts as interrupted. Who asks twice does not want to wait.
void Supervisor::pass_on(int number) {
  const bool again = std::exchange(result_.interrupted, true);
  signal_all(again ? SIGKILL : number);
  was_asked_ = true;
  deadline_ = Clock::now() + grace_;
}

void Supervisor::note_ended() {
  ChildProcess* failed = nullptr;
  for (const auto& child : children_) {
    if (!child->has_just_ended() || !child->has_failed()) continue;
    // Several may have ended since the last look: one that was killed is likelier the cause.
    if (!failed || (child->was_killed() && !failed->was_killed())) failed = child.get();
  }
  if (failed && !result_.failed_rank && !result_.interrupted) name_failed(*failed);
}

void Supervisor::name_failed(ChildProcess& failed) {
  failed.pass_rest();
  result_ = {.status = failed.exit_status(),
             .failed_rank = failed.number(),
             .message = fmt::format("{}: {}", failed.name(), failed.how_it_ended())};
  const ChildOutput& output = failed.output();
  deadline_ = Clock::now() + notice_;
  if (explains_itself_ && has_explained(failed)) {
    if (!output.is_shown()) unshown_ = output.last_lines().back();
    return;
  }
  std::string text = fmt::format("error: {}\n", result_.message);
  if (!output.last_lines().empty()) {
    text += fmt::format("last lines of {}{}:\n", failed.name(),
                        output.log().empty() ? "" : fmt::format(" ({})", output.log()));
    for (const std::string& line : output.last_lines()) text += fmt::format("  {}\n", line);
  }
  fmt::print(stderr, "{}", text);
}

// The time is over: first ask the children that are left to end, then kill them.
void Supervisor::press() {
  signal_all(was_asked_ ? SIGKILL : SIGTERM);
  was_asked_ = true;
  deadline_ = Clock::now() + grace_;
}

void Supervisor::signal_all(int number) {
  for (const auto& child : children_) child->signal(number);
}

}  // namespace fullshard
