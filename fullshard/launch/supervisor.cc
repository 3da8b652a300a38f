// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/supervisor.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/host_name.h"
#include "fullshard/base/printable.h"
#include "fullshard/base/standard_streams.h"

namespace fullshard::launch {
namespace {

constexpr int kInterrupted = 130;
// A sender may send a signal twice at once, as timeout(1) does: that is one request.
constexpr auto kOneRequest = std::chrono::milliseconds(100);
// How long to wait before node 0 is looked for again.
constexpr auto kRetry = std::chrono::milliseconds(50);

constexpr std::string_view kError = "error: ";
constexpr const char* kNode0Gone = "node 0: its launcher ended unexpectedly";

// The "error: …" at the end of the output of a program of ours, with the lines that belong to it;
// several may follow each other.
std::vector<std::string> explanation_in(const std::deque<std::string>& lines) {
  size_t begin = lines.size();
  for (size_t place = lines.size(); place > 0; --place) {
    const std::string& line = lines[place - 1];
    if (line.starts_with(kError)) {
      begin = place - 1;
    } else if (begin < lines.size() && !line.starts_with(' ')) {
      break;
    }
  }
  return {lines.begin() + static_cast<ptrdiff_t>(begin), lines.end()};
}

// Whether its last lines say why; assumed of one whose output goes straight to the terminal.
bool has_explained(const ChildProcess& child) {
  const ChildOutput& output = child.output();
  if (!child.has_failed() || child.was_killed()) return false;
  if (output.last_lines().empty()) return output.is_shown();
  return !explanation_in(output.last_lines()).empty();
}

// The last line that says something, without what the runtime library puts before it.
std::string sentence_of(const ChildProcess& failed) {
  const auto& lines = failed.output().last_lines();
  if (lines.empty()) return {};
  std::string_view line = lines.back();
  for (const std::string_view head : {"  what():  ", "error: "}) {
    if (line.starts_with(head)) line.remove_prefix(head.size());
  }
  return base::printable(std::string(line));
}

bool names(const std::string& text, const std::string& rank) {
  const size_t place = text.find(rank);
  if (place == std::string::npos) return false;
  const size_t end = place + rank.size();
  return end == text.size() || std::isdigit(static_cast<unsigned char>(text[end])) == 0;
}

std::string explanation_of(const ChildProcess& failed) {
  return fmt::format("{}", fmt::join(explanation_in(failed.output().last_lines()), "\n"));
}

// Why it failed, in its own words if they came through here.
std::string reason_of(const ChildProcess& failed) {
  std::string text;
  for (const std::string& line : explanation_in(failed.output().last_lines())) {
    const size_t begin = line.starts_with(kError) ? kError.size() : line.find_first_not_of(' ');
    if (!text.empty()) text += text.ends_with(':') ? " " : "; ";
    text += base::printable(line.substr(begin));
  }
  if (text.empty()) text = failed.how_it_ended();
  return names(text, failed.name()) ? text : fmt::format("{}: {}", failed.name(), text);
}

}  // namespace

using std::chrono::milliseconds;

Supervisor::Supervisor(Children children, const Signals& signals, const LaunchOptions& options)
    : children_(std::move(children)),
      signals_(signals),
      options_(options),
      control_(options.control) {}

LaunchResult Supervisor::run() {
  while (is_any_running()) {
    wait_for_something();
    heed_nodes();
    while (const auto number = signals_.next()) {
      if (*number != SIGCHLD) pass_on(*number);
    }
    note_ended();
    if (deadline_ && Clock::now() >= *deadline_) press();
  }
  for (const auto& child : children_) child->pass_rest();
  if (meeting_ != nullptr) meeting_->read();
  if (meeting_ != nullptr && meeting_->num_begun() > 0) warn_of_unread_config();
  if (!unshown_.empty() && !has_shown_error()) base::say(unshown_ + "\n");
  repeat_failure();
  if (result_.interrupted) conclude_interrupted();
  if (result_.status == 0) notice_lost_output();
  return result_;
}

// A program that saves itself may still have finished, or failed while it saved.
void Supervisor::conclude_interrupted() {
  const bool is_done = std::none_of(children_.begin(), children_.end(),
                                    [](const auto& child) { return child->has_failed(); });
  if (options_.saves_itself && !asked_twice_ && (is_done || result_.failed_rank)) return;
  const std::string how = first_signal_ != 0
                              ? fmt::format("interrupted by {}", signal_name(first_signal_))
                              : fmt::format("interrupted by a signal to {}", signalled_);
  result_ = {.status = kInterrupted,
             .message = how + (asked_twice_ ? ", and ended at once by a second signal" : ""),
             .interrupted = true};
}

void Supervisor::notice_lost_output() {
  for (const auto& child : children_) {
    if (child->output().lost_output() == 0) continue;
    result_.status = static_cast<int>(ErrorKind::failed);
    result_.message =
        fmt::format("standard output: cannot be written: {}; the output of {} is lost",
                    std::strerror(child->output().lost_output()), child->name());
    base::say(fmt::format("error: {}\n", result_.message));
    return;
  }
}

// Later output of the others may have pushed it out of sight.
void Supervisor::repeat_failure() const {
  if (sentence_.empty() || (!others_are_direct_ && num_shown() == num_shown_then_)) return;
  base::say(fmt::format("error: {}; it said: {}\n", result_.message, sentence_));
}

size_t Supervisor::num_shown() const {
  return std::accumulate(
      children_.begin(), children_.end(), size_t{0},
      [](size_t sum, const auto& child) { return sum + child->output().num_shown(); });
}

// Ranks that fail alike print the same error: once is enough. A rank that has printed it may have
// been ended before it could exit.
bool Supervisor::has_shown_error() const {
  return std::any_of(children_.begin(), children_.end(), [](const auto& child) {
    const ChildOutput& output = child->output();
    return output.is_shown() &&
           (has_explained(*child) || !explanation_in(output.last_lines()).empty());
  });
}

bool Supervisor::is_any_running() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const auto& child) { return child->is_running(); });
}

void Supervisor::wait_for_something() {
  // poll ignores descriptors below zero.
  const int meeting = meeting_ != nullptr ? meeting_->descriptor() : -1;
  const int nodes = nodes_ != nullptr ? nodes_->descriptor() : -1;
  std::vector<pollfd> watched = {{signals_.descriptor(), POLLIN, 0},
                                 {control_, POLLIN, 0},
                                 {meeting, POLLIN, 0},
                                 {nodes, POLLIN, 0}};
  const size_t num_others = watched.size();
  for (const auto& child : children_) {
    for (const int output : child->outputs()) watched.push_back({output, POLLIN, 0});
  }
  // A second at most: a signal may be lost when another part of the program takes it.
  auto patience = nodes_ != nullptr && nodes_->is_connecting() ? kRetry : milliseconds(1000);
  if (deadline_) {
    const auto left = std::chrono::duration_cast<milliseconds>(*deadline_ - Clock::now());
    patience = std::clamp(left, milliseconds(1), patience);
  }
  ::poll(watched.data(), watched.size(), static_cast<int>(patience.count()));
  if (watched[1].revents != 0) read_control();
  if (watched[2].revents != 0) heed_meeting();
  for (size_t place = num_others; place < watched.size(); ++place) {
    const size_t output = place - num_others;
    if (watched[place].revents != 0) children_[output / 2]->pass_output(output % 2);
  }
}

void Supervisor::heed_meeting() {
  meeting_->read();
  if (meeting_->is_accepted()) {
    for (const auto& child : children_) child->accept_log();
  }
  if (meeting_->has_sharded()) warn_of_unread_config();
  if (has_lost_one() && !was_asked_ && is_meeting()) await_the_others();
}

// A program of ours has read it before it builds a model; others may not know about it.
void Supervisor::warn_of_unread_config() {
  if (options_.config.empty() || options_.node_rank != 0 || meeting_->has_read_config()) return;
  if (std::exchange(has_warned_, true)) return;
  base::say(
      fmt::format("warning: launch: the program has not read {}, so it changes only "
                  "ranks and hosts; read it with Plan::from_arguments(argc, argv), and give the "
                  "plan to shard()\n",
                  options_.config));
}

// Node 0 is looked for as long as the ranks look for each other.
void Supervisor::heed_nodes() {
  if (nodes_ == nullptr) return;
  if (!have_all_met()) nodes_->connect();
  nodes_->read();
  if (const auto loss = nodes_->loss_of(restart_)) return lose_elsewhere(loss->status, loss->text);
  if (!nodes_->has_ended() || has_lost_one() || result_.interrupted || !is_meeting()) return;
  if (restart_ > 0) return await_node_0();
  if (nodes_->is_cut()) lose_node_0();
}

// If it comes back, it has to be told which start this was.
void Supervisor::lose_node_0() {
  const Loss loss{restart_, static_cast<int>(ErrorKind::failed), kNode0Gone};
  lose_elsewhere(loss.status, loss.text);
  if (is_lost_elsewhere_) nodes_->tell(loss);
}

// A host that was lost comes back with the same command, and ranks that were started again wait for
// it. The loss itself may become known only now.
void Supervisor::await_node_0() {
  if (nodes_->is_cut()) {
    base::say(fmt::format("launch: {}; waiting for it to come back\n", kNode0Gone));
  }
  nodes_->look_again();
}

void Supervisor::read_control() {
  char buffer[256];
  const ssize_t got = ::read(control_, buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {  // the launcher, or the connection to it, is gone
    control_ = -1;
    lose_launcher();
    return;
  }
  said_.append(buffer, static_cast<size_t>(got));
  for (size_t end; (end = said_.find('\n')) != std::string::npos; said_.erase(0, end + 1)) {
    constexpr std::string_view kSignal = "signal ", kLost = "lost ";
    if (said_.starts_with(kSignal)) pass_on(std::atoi(said_.c_str() + kSignal.size()));
    if (said_.starts_with(kLost)) {
      lose_elsewhere(std::atoi(said_.c_str() + kLost.size()), "a rank on another host has failed");
    }
  }
}

// From here on the job counts as interrupted. A second signal means that the user does not want to
// wait; but a terminal that closes and the shell behind it may both send SIGHUP, which is no second
// request.
void Supervisor::pass_on(int number) {
  const auto now = Clock::now();
  const bool was_interrupted = std::exchange(result_.interrupted, true);
  if (number == SIGHUP && was_interrupted) return;
  if (number == SIGKILL || (number != SIGHUP && asked_at_)) {
    if (number != SIGKILL && now - *asked_at_ < kOneRequest) return;
    asked_twice_ = was_asked_ = true;
    deadline_ = now + options_.grace;  // for hosts that cannot be reached
    return signal_all(SIGKILL);
  }
  if (number != SIGHUP) asked_at_ = now;
  if (!was_interrupted) first_signal_ = number;
  signal_all(number);
  if (options_.saves_itself) return;  // it says so itself, and no timeout applies
  was_asked_ = true;
  deadline_ = now + options_.grace;
  if (options_.control >= 0) return;
  base::say(
      fmt::format("launch: {} passed on; ranks that have not ended in {} s are killed, a second "
                  "signal kills them at once\n",
                  signal_name(number), static_cast<double>(options_.grace.count()) / 1000));
}

// No one is left to send a second signal.
void Supervisor::lose_launcher() {
  if (!std::exchange(result_.interrupted, true)) first_signal_ = SIGTERM;
  signal_all(SIGTERM);
  was_asked_ = true;
  deadline_ = Clock::now() + options_.grace;
}

void Supervisor::note_ended() {
  ChildProcess* failed = nullptr;
  for (const auto& child : children_) {
    if (!child->has_just_ended() || !child->has_failed()) continue;
    if (has_saved(*child)) {
      note_saved(*child);
      continue;
    }
    // Several may have ended since the last look: one that was killed is likelier the cause.
    if (!failed || (child->was_killed() && !failed->was_killed())) failed = child.get();
  }
  if (!failed) return;
  if (has_lost_one()) return keep_reason(*failed);
  if (!result_.interrupted) return name_failed(*failed);
  if (options_.saves_itself) note_ended_after_signal(*failed);
}

bool Supervisor::has_saved(const ChildProcess& child) const {
  return options_.saves_itself && !child.was_killed() && child.exit_status() == kInterrupted;
}

// Ranks that have met tell each other about a signal: one that came to one of them ends the job
// like any other. Those that have not met would only wait for that rank.
void Supervisor::note_saved(const ChildProcess& child) {
  if (has_lost_one() || std::exchange(result_.interrupted, true)) return;
  signalled_ = child.name();
  if (meeting_ != nullptr) meeting_->read();
  if (is_meeting()) deadline_ = Clock::now();
}

void Supervisor::note_ended_after_signal(ChildProcess& child) {
  if (was_asked_ || is_one_missing_) return;  // it was killed here, or ended because of that one
  const bool heeds_no_signal =
      child.was_killed_by(SIGINT) || child.was_killed_by(SIGTERM) || child.was_killed_by(SIGHUP);
  if (!heeds_no_signal) return name_failed(child);
  // It had nothing to save yet, and the others will miss it.
  is_one_missing_ = true;
  await_the_others();
}

// Our own programs always meet; others do if one of their ranks has begun to.
bool Supervisor::is_meeting() const {
  if (meeting_ == nullptr) return false;
  const bool will_meet = options_.explains_itself || meeting_->num_begun() > 0;
  return will_meet && !have_all_met();
}

bool Supervisor::have_all_met() const {
  return meeting_ != nullptr && meeting_->num_met() >= static_cast<int>(children_.size());
}

// What ranks said before one of them ended may still be unread.
void Supervisor::await_the_others() {
  if (meeting_ != nullptr) meeting_->read();
  deadline_ = Clock::now() + (is_meeting() ? milliseconds(0) : options_.notice);
}

// Tells the launchers of other hosts and nodes, whose ranks may not be able to notice the failure.
void Supervisor::tell_others(const ChildProcess& failed) {
  if (nodes_ != nullptr) {
    nodes_->tell({restart_, result_.status,
                  fmt::format("{} on host {}: {}", failed.name(), base::host_name(),
                              failed.how_it_ended())});
  }
  for (const auto& child : children_) {
    if (child->is_running()) child->tell(fmt::format("lost {}", result_.status));
  }
}

// Treats it like the loss of a local rank; over ssh the launcher of its host has named it already.
// A local rank that ended before this was heard is the cause rather than the consequence.
void Supervisor::lose_elsewhere(int status, const std::string& text) {
  note_ended();
  if (has_lost_one() || result_.interrupted) return;
  is_lost_elsewhere_ = true;
  result_.status = status;
  result_.message = text;
  if (options_.control < 0) base::say(fmt::format("error: {}\n", text));
  await_the_others();
}

// A launcher of another node reports how its rank ended, not why. A local rank that failed in the
// same way knows why.
void Supervisor::keep_reason(ChildProcess& failed) {
  const bool is_told_of = is_lost_elsewhere_ && options_.control < 0;
  if (!is_told_of || !options_.explains_itself) return;
  failed.pass_rest();
  if (failed.exit_status() != result_.status || !has_explained(failed)) return;
  if (!failed.output().is_shown()) unshown_ = explanation_of(failed);
}

void Supervisor::name_failed(ChildProcess& failed) {
  failed.pass_rest();
  result_.status = failed.exit_status();
  result_.failed_rank = failed.number();
  result_.message = fmt::format("{}: {}", failed.name(), failed.how_it_ended());
  tell_others(failed);
  const ChildOutput& output = failed.output();
  await_the_others();
  if (options_.explains_itself && has_explained(failed)) {
    result_.message = reason_of(failed);
    if (!output.is_shown()) unshown_ = explanation_of(failed);
    return;
  }
  std::string text = fmt::format("error: {}\n", result_.message);
  if (!output.last_lines().empty()) {
    text += fmt::format("last lines of {}{}:\n", failed.name(),
                        output.log().empty() ? "" : fmt::format(" ({})", output.log()));
    for (const std::string& line : output.last_lines()) text += fmt::format("  {}\n", line);
  }
  base::say(text);
  sentence_ = sentence_of(failed);
  num_shown_then_ = num_shown();
  others_are_direct_ = std::any_of(children_.begin(), children_.end(), [](const auto& child) {
    return child->is_running() && child->is_direct();
  });
}

// The time is over: first asks the children that are left to end, then kills them. A program that
// saves itself is killed at once: it would begin to save although a rank is gone.
void Supervisor::press() {
  signal_all(was_asked_ || options_.saves_itself ? SIGKILL : SIGTERM);
  was_asked_ = true;
  deadline_ = Clock::now() + options_.grace;
}

void Supervisor::signal_all(int number) {
  for (const auto& child : children_) child->signal(number);
}

}  // namespace fullshard::launch
