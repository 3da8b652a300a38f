// SPDX-License-Identifier: Apache-2.0
// What NCCL has to find in the environment of its process before it starts. A pure function of the
// variables that are there, so that it can be tried without a GPU.
#pragma once

#include <string>
#include <vector>

#include "fullshard/base/launcher_environment.h"

namespace fullshard::comm {

struct NcclSetting {
  std::string name;
  std::string value;

  bool operator==(const NcclSetting&) const = default;
};

// Only what is not set yet: a user's own NCCL_* variables always win.
//   NCCL_SOCKET_IFNAME          the network interface, by its exact name; empty: NCCL chooses
//   NCCL_LAUNCH_ORDER_IMPLICIT  1: kernels of several communicators start in the order of the calls
std::vector<NcclSetting> nccl_settings(const std::string& interface,
                                       const base::LauncherEnvironment::Lookup& lookup);

}  // namespace fullshard::comm
