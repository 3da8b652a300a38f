// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM, SIGHUP and SIGCHLD arrive as reads while this lives, so that one poll waits for
// everything; a write that nobody reads is an error and not the end.
#pragma once

#include <csignal>
#include <optional>
#include <string>

namespace fullshard::launch {

std::string signal_name(int number);  // "SIGTERM"

// A SIGHUP or SIGINT that is ignored, as under nohup and in the background of a script, stays so.
// After one that asks for the end was read,
// more of them change nothing: those that nobody has read when this goes are dropped.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_; }
  // The number of one that has arrived.
  std::optional<int> next() const;

 private:
  sigset_t watched_;
  sigset_t before_;
  struct sigaction broken_pipe_before_ = {};
  int descriptor_ = -1;
  mutable bool was_told_ = false;  // to end
};

}  // namespace fullshard::launch
