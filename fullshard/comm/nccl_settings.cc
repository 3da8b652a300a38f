#include "fullshard/comm/nccl_settings.h"

#include <utility>

namespace fullshard {

std::vector<NcclSetting> nccl_settings(const Lookup& lookup) {
  std::vector<NcclSetting> settings;
  const auto add = [&](std::string name, std::string value) {
    if (!lookup(name)) settings.push_back({std::move(name), std::move(value)});
  };
  // NCCL takes a bare name for the beginning of one: eth1 would be eth10 too.
  const auto interface = lookup("FULLSHARD_SOCKET_IFNAME");
  if (interface && !interface->empty()) add("NCCL_SOCKET_IFNAME", "=" + *interface);
  add("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  return settings;
}

}  // namespace fullshard
