// SPDX-License-Identifier: Apache-2.0
// What a rank tells `fullshard launch`, which started it, a letter each, through a pipe that it
// inherits. Without such a launcher (FULLSHARD_MEETING) nothing is told.
#pragma once

#include "fullshard/base/launcher_environment.h"

namespace fullshard::base {

enum class RankNotice : char {
  begins_to_meet = 'b',      // it looks for the other ranks: none of them can be missed yet
  has_met = 'm',             // it has found them
  accepts_folder = 'a',      // its run may begin in its folder
  has_read_config = 'c',     // it has read the configuration that the launcher was given
  has_sharded_a_model = 's'  // of rank 0
};

// Any process that a rank has started, or has become, may do so, until begin_to_meet().
void tell_launcher(const LauncherVariable& meeting, RankNotice notice);

// Tells that, and keeps the pipe from the programs that this process starts: they are no ranks.
void begin_to_meet(const LauncherVariable& meeting);

}  // namespace fullshard::base
