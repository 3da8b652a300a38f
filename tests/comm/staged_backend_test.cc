// SPDX-License-Identifier: Apache-2.0
// Host tensors stand in for device ones: the staging copies are the same.
#include "fullshard/comm/gpu/staged_backend.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "expect_error.h"
#include "fullshard/comm/gpu/device_transport.h"
#include "fullshard/comm/world/world.h"
#include "shm_ranks.h"

namespace fullshard::comm {
namespace {

Communicator staged(const ShmTestRank& rank) {
  std::vector<int> all(rank.size);
  std::iota(all.begin(), all.end(), 0);
  return Communicator(
      std::make_shared<StagedBackend>(rank.domain.make_backend({all}, "behind the stage")),
      std::make_shared<Recorder>(rank.rank), "staged");
}

TEST(StagedBackend, GathersIntoTheDevicesMemory) {
  run_shm_ranks(3, [](const ShmTestRank& rank) {
    const auto full = at::zeros({6});
    const auto own = full.narrow(0, 2 * rank.rank, 2);
    own.fill_(rank.rank + 1);
    auto work = staged(rank).all_gather(full, own);
    work.wait();
    EXPECT_TRUE(full.equal(at::tensor({1, 1, 2, 2, 3, 3}, at::kFloat)));
  });
}

TEST(StagedBackend, SumsAsTheHostsBackendAndAdds) {
  run_shm_ranks(2, [](const ShmTestRank& rank) {
    const auto full = at::arange(4, at::kFloat) * (rank.rank + 1);
    const auto shard = at::full({2}, 10, at::kFloat);
    staged(rank).reduce_scatter(shard, full, {.op = ReduceOp::sum, .accumulate = true}).wait();
    EXPECT_TRUE(shard.equal(rank.rank == 0 ? at::tensor({10, 13}, at::kFloat)
                                           : at::tensor({16, 19}, at::kFloat)));
  });
}

TEST(StagedBackend, ExchangesRows) {
  run_shm_ranks(2, [](const ShmTestRank& rank) {
    const auto received = at::zeros({2, 2}, at::kLong);
    staged(rank).all_to_all(received, at::arange(4) + 10 * rank.rank).wait();
    EXPECT_TRUE(received.view({-1}).equal(at::tensor({0, 1, 10, 11}, at::kLong) + 2 * rank.rank));
  });
}

TEST(StagedBackend, BroadcastsTheRootsValues) {
  run_shm_ranks(2, [](const ShmTestRank& rank) {
    const auto values = at::full({3}, rank.rank, at::kLong);
    staged(rank).broadcast(values, 1).wait();
    EXPECT_TRUE(values.equal(at::ones({3}, at::kLong)));
  });
}

TEST(StagedBackend, DeliversOutsideTheInferenceModeInWhichTensorsWereMade) {
  run_shm_ranks(2, [](const ShmTestRank& rank) {
    at::Tensor full;
    Work work;
    {
      const c10::InferenceMode inference;
      full = at::zeros({4});
      work = staged(rank).all_gather(full, at::full({2}, rank.rank + 1, at::kFloat));
    }
    work.wait();
    EXPECT_TRUE(full.equal(at::tensor({1, 1, 2, 2}, at::kFloat)));
  });
}

TEST(Device, IsNamedInWords) {
  EXPECT_EQ(choose_device("cpu", 3), at::Device(at::kCPU));
  EXPECT_EQ(error_of([] { choose_device("gpu", 0); }),
            "device 'gpu': expected cpu, cuda or cuda:N");
  EXPECT_EQ(World::single().device(), at::Device(at::kCPU));
}

TEST(Device, NcclNeedsGpus) {
  EXPECT_EQ(error_of([] { World::from_environment({.backend = "nccl"}); }),
            "world: backend nccl moves the memory of GPUs, but the device is cpu; set device to "
            "cuda, or use auto");
}

}  // namespace
}  // namespace fullshard::comm
