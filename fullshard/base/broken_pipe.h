// SPDX-License-Identifier: Apache-2.0
// A write to a peer that has died raises SIGPIPE, which would end this process before it can say
// who is missing. gloo writes without asking for an error instead (Python ignores the signal, so
// nobody there notices).
#pragma once

#include <csignal>
#include <ctime>

namespace fullshard::base {

// While it lives, this thread, and every thread started by it, gets an error from such a write. The
// program's own handling of the signal stays as it is.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&broken_pipe_);
    sigaddset(&broken_pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
  }
  ~NoBrokenPipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    // One that was raised meanwhile must not arrive now.
    const timespec at_once = {};
    while (sigtimedwait(&broken_pipe_, nullptr, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t broken_pipe_ = {};
  sigset_t before_ = {};
};

}  // namespace fullshard::base
