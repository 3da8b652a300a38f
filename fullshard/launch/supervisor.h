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
#include "fullshard/launch/signals.h"

namespace fullshard {

using Children = std::vector<std::unique_ptr<ChildProcess>>;

class Supervisor {
 public:
  // `control` as in LaunchOptions.
  Supervisor(Children children, const Signals& signals, std::chrono::milliseconds notice,
             std::chrono::milliseconds grace, int control = -1);

  // As LaunchOptions::explains_itself.
  void trust_messages() { explains_itself_ = true; }

  LaunchResult run();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_any_running() const;
  bool has_shown_error() const;
  void wait_for_something();
  void read_control();
  void pass_on(int number);
  void note_ended();
  void name_failed(ChildProcess& failed);
  void press();
  void signal_all(int number);

  Children children_;
  const Signals& signals_;
  std::chrono::milliseconds notice_;
  std::chrono::milliseconds grace_;
  int control_;
  bool explains_itself_ = false;
  std::string unshown_;  // why a rank failed whose output is not shown
  std::string said_;     // by the control, up to an unfinished line
  LaunchResult result_;
  bool was_asked_ = false;  // the children have been told to end
  std::optional<Clock::time_point> deadline_;
};

}  // namespace fullshard
