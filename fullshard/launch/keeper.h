// SPDX-License-Identifier: Apache-2.0
// Ends what the launcher has started if the launcher dies before it can do so (kill -9).
#pragma once

#include <sys/types.h>

namespace fullshard::launch {

// A process next to the launcher that knows the process groups of the ranks. It waits for the end
// of a pipe that only the launcher holds, and then kills the groups that are left.
class Keeper {
 public:
  Keeper();
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Called by the new leader of a group before it becomes another program, so that no group is ever
  // unknown. Safe after a fork.
  void note_started(pid_t group) const noexcept;
  void note_ended(pid_t group) const noexcept;

 private:
  int pipe_ = -1;
  pid_t pid_ = -1;
};

}  // namespace fullshard::launch
