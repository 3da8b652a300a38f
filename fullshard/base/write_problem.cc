// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/write_problem.h"

#include <cerrno>

namespace fullshard::base {

bool is_room_missing(int reason) { return reason == ENOSPC || reason == EDQUOT || reason == EFBIG; }

ErrorKind kind_of_write_problem(int reason) {
  return is_room_missing(reason) || reason == EIO ? ErrorKind::failed : ErrorKind::input;
}

}  // namespace fullshard::base
