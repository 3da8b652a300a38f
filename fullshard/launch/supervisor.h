// SPDX-License-Identifier: Apache-2.0
// Looks after a group of child processes until all have ended: passes output and signals on, and
// when one fails, ends the others.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/launch/child_process.h"
#include "fullshard/launch/launch.h"
#include "fullshard/launch/meeting_watch.h"
#include "fullshard/launch/node_line.h"
#include "fullshard/launch/signals.h"

namespace fullshard::launch {

using Children = std::vector<std::unique_ptr<ChildProcess>>;

class Supervisor {
 public:
  // Uses notice, grace, control and the facts about the program of the options.
  Supervisor(Children children, const Signals& signals, const LaunchOptions& options);

  // Ranks that have not met yet are ended at once when one of them fails. It outlives this.
  void watch_meeting(MeetingWatch& meeting) { meeting_ = &meeting; }
  // A rank that fails on another node counts as one of these. It outlives this.
  void watch_nodes(NodeLine& nodes, int restart) {
    nodes_ = &nodes;
    restart_ = restart;
    nodes.look_again();
  }

  LaunchResult run();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_any_running() const;
  bool has_shown_error() const;
  void wait_for_something();
  void read_control();
  void heed_meeting();
  void warn_of_unread_config();
  void heed_nodes();
  void lose_node_0();
  void await_node_0();
  void pass_on(int number);
  void lose_launcher();
  void note_ended();
  void name_failed(ChildProcess& failed);
  void tell_others(const ChildProcess& failed);
  void lose_elsewhere(int status, const std::string& text);
  void keep_reason(ChildProcess& failed);
  bool has_lost_one() const { return result_.failed_rank || is_lost_elsewhere_; }
  bool have_all_met() const;
  bool is_meeting() const;
  void await_the_others();
  bool has_saved(const ChildProcess& child) const;
  void note_saved(const ChildProcess& child);
  void note_ended_after_signal(ChildProcess& child);
  void press();
  void signal_all(int number);
  void conclude_interrupted();
  void notice_lost_output();
  void repeat_failure() const;
  size_t num_shown() const;

  Children children_;
  const Signals& signals_;
  LaunchOptions options_;
  MeetingWatch* meeting_ = nullptr;
  NodeLine* nodes_ = nullptr;
  int restart_ = 0;  // starts of the job before this one
  int control_;
  std::string unshown_;        // why a rank failed whose output is not shown
  std::string said_;           // an unfinished line that came from the control
  std::string sentence_;       // the error of a rank that failed and whose last lines were shown
  size_t num_shown_then_ = 0;  // pieces of output, up to those lines
  bool others_are_direct_ = false;  // some output does not come through here
  LaunchResult result_;
  bool was_asked_ = false;  // the children have been told to end
  int first_signal_ = 0;    // the one passed on; 0: none
  std::string signalled_;   // the rank that heeded a signal that did not come through here
  bool asked_twice_ = false;
  bool is_lost_elsewhere_ = false;             // a rank of another host has failed
  bool has_warned_ = false;                    // about a configuration that is not read
  bool is_one_missing_ = false;                // ended by the first signal, without having saved
  std::optional<Clock::time_point> asked_at_;  // by SIGINT or SIGTERM
  std::optional<Clock::time_point> deadline_;
};

}  // namespace fullshard::launch
