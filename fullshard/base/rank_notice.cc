// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/rank_notice.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "fullshard/base/broken_pipe.h"

namespace fullshard::base {
namespace {

// "NUMBER:INODE" of a pipe; -1 where the number has come to mean something else.
int launchers_pipe(const LauncherVariable& meeting) {
  int descriptor = -1;
  unsigned long long inode = 0;
  if (!meeting || std::sscanf(meeting.text->c_str(), "%d:%llu", &descriptor, &inode) != 2) {
    return -1;
  }
  struct stat facts = {};
  const bool is_it = ::fstat(descriptor, &facts) == 0 && S_ISFIFO(facts.st_mode) &&
                     static_cast<unsigned long long>(facts.st_ino) == inode;
  return is_it ? descriptor : -1;
}

}  // namespace

void tell_launcher(const LauncherVariable& meeting, RankNotice notice) {
  const int pipe = launchers_pipe(meeting);
  if (pipe < 0) return;
  const NoBrokenPipe guard;  // the launcher may be gone
  const char letter = static_cast<char>(notice);
  [[maybe_unused]] const ssize_t told = ::write(pipe, &letter, 1);
}

void begin_to_meet(const LauncherVariable& meeting) {
  const int pipe = launchers_pipe(meeting);
  if (pipe >= 0) ::fcntl(pipe, F_SETFD, FD_CLOEXEC);
  tell_launcher(meeting, RankNotice::begins_to_meet);
}

}  // namespace fullshard::base
