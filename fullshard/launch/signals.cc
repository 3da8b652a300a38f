#include "fullshard/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard {

Signals::Signals() {
  ::sigemptyset(&watched_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&watched_, number);
  ::pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  descriptor_ = ::signalfd(-1, &watched_, SFD_NONBLOCK | SFD_CLOEXEC);
  check(descriptor_ >= 0, "launch: cannot watch signals: {}", std::strerror(errno));
}

Signals::~Signals() {
  ::close(descriptor_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> Signals::next() const {
  signalfd_siginfo info;
  if (::read(descriptor_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace fullshard
