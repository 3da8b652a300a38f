// SPDX-License-Identifier: Apache-2.0
// While this lives, SIGINT, SIGTERM, SIGHUP and SIGCHLD arrive as reads, so that one poll waits for
// everything, and writing to a closed pipe is an error that does not end the process.
#pragma once

#include <csignal>
#include <optional>
#include <string>

namespace fullshard::launch {

std::string signal_name(int number);  // "SIGTERM"

// A SIGHUP or SIGINT that is ignored, as under nohup and in the background of a script, stays
// ignored. After a signal that asks the process to end, more of them change nothing: those still
// unread when this is destroyed are dropped.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_; }
  // The number of a signal that has arrived.
  std::optional<int> next() const;

 private:
  sigset_t watched_;
  sigset_t before_;
  struct sigaction broken_pipe_before_ = {};
  int descriptor_ = -1;
  mutable bool was_told_ = false;  // a signal that asks the process to end was read
};

}  // namespace fullshard::launch
