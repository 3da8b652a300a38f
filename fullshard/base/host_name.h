// SPDX-License-Identifier: Apache-2.0
// What this machine is called, in messages and records.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace fullshard::base {

inline std::string host_name() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace fullshard::base
