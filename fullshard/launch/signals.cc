// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard::launch {
namespace {

// A blocked signal is queued even where it is ignored: it must not be watched then.
bool is_ignored(int number) {
  struct sigaction action = {};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(number);
}

Signals::Signals() {
  ::sigemptyset(&watched_);
  for (const int number : {SIGTERM, SIGCHLD}) ::sigaddset(&watched_, number);
  for (const int number : {SIGINT, SIGHUP}) {
    if (!is_ignored(number)) ::sigaddset(&watched_, number);
  }
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, &broken_pipe_before_);
  ::pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  descriptor_ = ::signalfd(-1, &watched_, SFD_NONBLOCK | SFD_CLOEXEC);
  check(descriptor_ >= 0, "launch: cannot watch signals: {}", std::strerror(errno));
}

Signals::~Signals() {
  while (was_told_ && next()) {
  }
  ::close(descriptor_);
  ::sigaction(SIGPIPE, &broken_pipe_before_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> Signals::next() const {
  signalfd_siginfo info;
  if (::read(descriptor_, &info, sizeof info) != sizeof info) return std::nullopt;
  const auto number = static_cast<int>(info.ssi_signo);
  was_told_ = was_told_ || number != SIGCHLD;
  return number;
}

}  // namespace fullshard::launch
