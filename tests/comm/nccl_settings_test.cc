// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/nccl_settings.h"

#include <gtest/gtest.h>

#include <map>

namespace fullshard::comm {
namespace {

std::vector<NcclSetting> settings_in(const std::string& interface,
                                     const std::map<std::string, std::string>& variables = {}) {
  return nccl_settings(interface, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

const NcclSetting kInOrder{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"};

TEST(NcclSettings, TakeTheInterfaceByItsExactName) {
  EXPECT_EQ(settings_in("eth1"),
            (std::vector<NcclSetting>{{"NCCL_SOCKET_IFNAME", "=eth1"}, kInOrder}));
  EXPECT_EQ(settings_in(""), std::vector<NcclSetting>{kInOrder});
}

TEST(NcclSettings, LeaveAloneWhatIsSet) {
  EXPECT_EQ(
      settings_in("eth1", {{"NCCL_SOCKET_IFNAME", "ib0"}, {"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}}),
      std::vector<NcclSetting>{});
}

}  // namespace
}  // namespace fullshard::comm
