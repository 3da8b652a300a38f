// SPDX-License-Identifier: Apache-2.0
// Tells `fullshard launch` whether the ranks have met. Before that none of them can notice that
// another is gone, so that the launcher need not wait for what they have to say of it.
#pragma once

#include "fullshard/base/launcher_environment.h"

namespace fullshard::comm {

// Tells it that the run may begin in its folder, so that the logs there can be replaced. For every
// rank, when rank 0 has looked.
void tell_launcher_run_is_accepted(const base::LauncherEnvironment& launcher);

// Says that this process begins to look for the others, and by met() that it has found them. Where
// nobody launched it so (FULLSHARD_MEETING), it says nothing.
class MeetingNotice {
 public:
  explicit MeetingNotice(const base::LauncherEnvironment& launcher);
  void met() const;

 private:
  int pipe_ = -1;
};

}  // namespace fullshard::comm
