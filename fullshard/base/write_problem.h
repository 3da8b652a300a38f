// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fullshard/base/error.h"

namespace fullshard::base {

// No room, for a disk, a quota or the limit of a file's size.
bool is_room_missing(int reason);

// Of an Error about something that could not be written, by errno: a full or failing disk is a
// failure while running; anything else, such as no permission, is about the place that was named.
ErrorKind kind_of_write_problem(int reason);

}  // namespace fullshard::base
