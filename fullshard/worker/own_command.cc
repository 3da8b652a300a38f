// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/own_command.h"

#include <unistd.h>

#include <climits>

#include "fullshard/base/error.h"

namespace fullshard::worker {

std::string own_command() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) fail("fullshard-core: cannot find the path of this program");
  const std::string core(path, static_cast<size_t>(size));
  return core.substr(0, core.rfind('/')) + "/fullshard";
}

}  // namespace fullshard::worker
