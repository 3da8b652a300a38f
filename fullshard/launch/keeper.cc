// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/keeper.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard::launch {
namespace {

constexpr size_t kMostGroups = 8192;

void close_all_but(int kept) {
  const long most = std::min(::sysconf(_SC_OPEN_MAX), 4096L);
  if (kept > 0 && ::close_range(0, static_cast<unsigned>(kept) - 1, 0) == 0 &&
      ::close_range(static_cast<unsigned>(kept) + 1, ~0U, 0) == 0) {
    return;
  }
  for (int descriptor = 0; descriptor < most; ++descriptor) {
    if (descriptor != kept) ::close(descriptor);
  }
}

// Runs after a fork, possibly of a process with threads: no allocation.
[[noreturn]] void keep(int pipe) {
  ::setsid();  // killing the launcher's group or session leaves this process alone
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) ::signal(number, SIG_IGN);
  close_all_but(pipe);
  std::array<int32_t, kMostGroups> groups{};
  size_t count = 0;
  int32_t said = 0;
  for (ssize_t got; (got = ::read(pipe, &said, sizeof said)) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof said) break;
    if (said > 0 && count < kMostGroups) groups[count++] = said;
    const auto end = groups.begin() + static_cast<ptrdiff_t>(count);
    const auto ended = std::find(groups.begin(), end, -said);
    if (said < 0 && ended != end) *ended = groups[--count];
  }
  for (size_t place = 0; place < count; ++place) ::kill(-groups[place], SIGKILL);
  ::_exit(0);
}

void say(int pipe, int32_t what) noexcept {
  while (::write(pipe, &what, sizeof what) < 0 && errno == EINTR) {
  }
}

}  // namespace

Keeper::Keeper() {
  int ends[2];
  const bool is_made = ::pipe2(ends, O_CLOEXEC) == 0;
  check(is_made, "launch: cannot make a pipe: {}", std::strerror(errno));
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(ends[1]);
    keep(ends[0]);
  }
  const int reason = errno;
  ::close(ends[0]);
  pipe_ = ends[1];
  if (pid_ < 0) ::close(pipe_);
  check(pid_ > 0, "launch: cannot start a process: {}", std::strerror(reason));
}

Keeper::~Keeper() {
  ::close(pipe_);
  ::waitpid(pid_, nullptr, 0);
}

void Keeper::note_started(pid_t group) const noexcept { say(pipe_, group); }
void Keeper::note_ended(pid_t group) const noexcept { say(pipe_, -group); }

}  // namespace fullshard::launch
