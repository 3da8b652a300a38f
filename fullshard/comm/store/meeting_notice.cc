// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/store/meeting_notice.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "fullshard/comm/broken_pipe.h"

namespace fullshard::comm {
namespace {

// "NUMBER:INODE" of a pipe; -1 where the number has come to mean something else.
int launchers_pipe(const base::LauncherVariable& meeting) {
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

void say(int pipe, char what) {
  if (pipe < 0) return;
  const NoBrokenPipe guard;  // the launcher may be gone
  [[maybe_unused]] const ssize_t told = ::write(pipe, &what, 1);
}

}  // namespace

void tell_launcher_run_is_accepted(const base::LauncherEnvironment& launcher) {
  say(launchers_pipe(launcher.meeting), 'a');
}

MeetingNotice::MeetingNotice(const base::LauncherEnvironment& launcher)
    : pipe_(launchers_pipe(launcher.meeting)) {
  if (pipe_ >= 0) ::fcntl(pipe_, F_SETFD, FD_CLOEXEC);  // programs that a rank starts are no ranks
  say(pipe_, 'b');
}

void MeetingNotice::met() const { say(pipe_, 'm'); }

}  // namespace fullshard::comm
