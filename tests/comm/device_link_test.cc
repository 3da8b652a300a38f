// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/device_link.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace fullshard::comm {
namespace {

std::vector<RankDevice> ranks_on(const std::vector<std::pair<int, std::string>>& gpus) {
  std::vector<RankDevice> ranks;
  for (const auto& [host, gpu] : gpus) ranks.push_back({host, gpu});
  return ranks;
}

// srun --gpus-per-task=1, CUDA_VISIBLE_DEVICES per rank, or cuda:N by name: each rank sees one GPU,
// and all of these call it number 0. What counts is which one it is.
TEST(DeviceLink, IsNcclWhereEveryRankHasAGpuOfItsOwn) {
  for (const auto* backend : {"auto", "nccl"}) {
    const auto decision = decide_link(ranks_on({{0, "a"}, {0, "b"}, {0, "c"}}), backend);
    EXPECT_EQ(decision.link, DeviceLink::nccl);
    EXPECT_EQ(decision.warning, "");
  }
}

TEST(DeviceLink, IsNcclBetweenHostsWithDifferentNumbersOfGpus) {
  const auto ranks = ranks_on({{0, "a"}, {0, "b"}, {0, "c"}, {1, "d"}});
  EXPECT_EQ(decide_link(ranks, "auto").link, DeviceLink::nccl);
}

// Ranks that are told to be hosts of their own (NCCL_HOSTID) may use one GPU: so NCCL sees it too.
TEST(DeviceLink, TellsTheGpusOfDifferentHostsApart) {
  EXPECT_EQ(decide_link(ranks_on({{0, "a"}, {1, "a"}}), "nccl").link, DeviceLink::nccl);
}

TEST(DeviceLink, IsTheGpusMemoryWhereRanksOfOneHostShareOne) {
  const auto decision = decide_link(ranks_on({{0, "a"}, {0, "b"}, {0, "a"}}), "auto");
  EXPECT_EQ(decision.link, DeviceLink::shared);
  EXPECT_EQ(decision.warning, "");
}

TEST(DeviceLink, WarnsWhereSeveralHostsMustGoThroughHostMemory) {
  const auto decision = decide_link(ranks_on({{0, "a"}, {1, "b"}, {1, "b"}}), "auto");
  EXPECT_EQ(decision.link, DeviceLink::staged);
  EXPECT_EQ(decision.warning,
            "ranks 1 and 2 share GPU b of host 1, so collectives between GPUs go through host "
            "memory, which is slow; start one rank per GPU to use nccl");
}

TEST(DeviceLink, IsWhatTheBackendSays) {
  const auto ranks = ranks_on({{0, "a"}, {0, "b"}});
  EXPECT_EQ(decide_link(ranks, "gloo").link, DeviceLink::staged);
  EXPECT_EQ(decide_link(ranks, "shm").link, DeviceLink::shared);
  EXPECT_EQ(error_of([] {
              decide_link(ranks_on({{0, "a"}, {0, "a"}}), "nccl");
            }),
            "world: backend nccl, but ranks 0 and 1 share GPU a of host 0: nccl takes one rank per "
            "GPU; start fewer ranks, or let them share with backend auto");
}

TEST(DeviceLink, RefusesAMixtureOfCpusAndGpus) {
  EXPECT_EQ(error_of([] {
              decide_link(ranks_on({{0, "a"}, {0, ""}}), "auto");
            }),
            "world: rank 1 computes on the CPU, others on GPUs; give all ranks the same device");
}

}  // namespace
}  // namespace fullshard::comm
