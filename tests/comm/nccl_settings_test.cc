#include "fullshard/comm/nccl_settings.h"

#include <gtest/gtest.h>

#include <map>

namespace fullshard {
namespace {

std::vector<NcclSetting> settings_in(const std::map<std::string, std::string>& variables) {
  return nccl_settings([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

const NcclSetting kInOrder{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"};

TEST(NcclSettings, TakeTheInterfaceByItsExactName) {
  EXPECT_EQ(settings_in({{"FULLSHARD_SOCKET_IFNAME", "eth1"}}),
            (std::vector<NcclSetting>{{"NCCL_SOCKET_IFNAME", "=eth1"}, kInOrder}));
  EXPECT_EQ(settings_in({}), std::vector<NcclSetting>{kInOrder});
  EXPECT_EQ(settings_in({{"FULLSHARD_SOCKET_IFNAME", ""}}), std::vector<NcclSetting>{kInOrder});
}

TEST(NcclSettings, LeaveAloneWhatIsSet) {
  EXPECT_EQ(settings_in({{"FULLSHARD_SOCKET_IFNAME", "eth1"},
                         {"NCCL_SOCKET_IFNAME", "ib0"},
                         {"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}}),
            std::vector<NcclSetting>{});
}

}  // namespace
}  // namespace fullshard
