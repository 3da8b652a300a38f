// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/nccl_settings.h"

#include <utility>

namespace fullshard::comm {

std::vector<NcclSetting> nccl_settings(const std::string& interface,
                                       const base::LauncherEnvironment::Lookup& lookup) {
  std::vector<NcclSetting> settings;
  const auto add = [&](std::string name, std::string value) {
    if (!lookup(name)) settings.push_back({std::move(name), std::move(value)});
  };
  // NCCL takes a bare name for the beginning of one: eth1 would be eth10 too.
  if (!interface.empty()) add("NCCL_SOCKET_IFNAME", "=" + interface);
  add("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  return settings;
}

}  // namespace fullshard::comm
