// SPDX-License-Identifier: Apache-2.0
// A world on a GPU: how it is found, and its collectives.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fullshard/comm/gpu/device_transport.h"
#include "fullshard/comm/world/world.h"
#include "tests/comm/expect_error.h"
#include "tests/training/rank_processes.h"

namespace fullshard::testing {
namespace {

const auto kOnGpu = at::TensorOptions().device(at::Device(at::kCUDA, 0));

TEST(CudaWorld, RefusesAGpuThatIsNotThere) {
  const auto text = comm::error_of([] { comm::choose_device("cuda:99", 0); });
  EXPECT_NE(text.find("device 'cuda:99': "), std::string::npos) << text;
  EXPECT_NE(text.find("visible here, counted from 0"), std::string::npos) << text;
}

TEST(CudaWorld, CountsRoundWhenRanksShareGpus) {
  EXPECT_EQ(comm::choose_device("cuda", comm::num_cuda_devices()), at::Device(at::kCUDA, 0));
}

// A world of one has no communicator: nobody is there to talk to.
TEST(CudaWorld, NcclMovesSumsAndBroadcasts) {
  const World world = World::from_environment({.size = 1, .backend = "nccl", .device = "cuda"});
  EXPECT_EQ(world.backend(), "nccl");
  const auto& everyone = world.communicator();
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
    const auto values = at::arange(1000, kOnGpu.dtype(dtype));
    const auto full = at::zeros({1000}, kOnGpu.dtype(dtype));
    everyone.all_gather(full, values).wait();
    EXPECT_TRUE(full.equal(values));
    const auto sum = values.clone();
    everyone.all_reduce(sum).wait();
    EXPECT_TRUE(sum.equal(values));
    auto shard = at::ones({1000}, kOnGpu.dtype(dtype));
    everyone.reduce_scatter(shard, values, {.op = ReduceOp::sum, .accumulate = true}).wait();
    EXPECT_TRUE(shard.equal(values + 1));
    everyone.broadcast(shard, 0).wait();
    EXPECT_TRUE(shard.equal(values + 1));
  }
  const auto wide = at::zeros({10}, kOnGpu);
  everyone.reduce_scatter(wide, at::ones({10}, kOnGpu.dtype(at::kBFloat16))).wait();
  EXPECT_TRUE(wide.equal(at::ones({10}, kOnGpu)));
}

TEST(CudaWorld, NcclCallsAreInOrderWithTheCallersStream) {
  const World world = World::from_environment({.size = 1, .backend = "nccl", .device = "cuda"});
  for (int round = 0; round < 20; ++round) {
    const auto values = at::zeros({1 << 24}, kOnGpu);
    for (int i = 0; i < 10; ++i) values.add_(1);
    const auto full = at::empty({1 << 24}, kOnGpu);
    auto work = world.communicator().all_gather(full, values);
    work.wait();
    full.mul_(2);
    EXPECT_EQ(full.sum().item<double>(), 20.0 * (1 << 24));
  }
}

std::vector<RankResult> play(int ranks, const std::string& scene, const std::string& backend,
                             const std::string& device, bool separate_hosts = false) {
  return run_rank_program(ranks, {.name = "comm_world_rank",
                                  .arguments = {scene, backend, device},
                                  .separate_hosts = separate_hosts,
                                  .limit_s = 120});
}

// Ranks of NCCL that share the GPU, each a host of its own.
RankProgram on_nccl(const std::string& scene, const std::string& device = "cuda") {
  return {.name = "comm_world_rank",
          .arguments = {scene, "nccl", device},
          .separate_hosts = true,
          .limit_s = 120};
}

// What a rank says after its name and backend.
std::string answer_of(const RankResult& result) {
  const size_t colon = result.output.find(": ");
  EXPECT_NE(colon, std::string::npos) << result.output << result.errors;
  return colon == std::string::npos ? "" : result.output.substr(colon);
}

TEST(CudaWorld, RanksThatShareAGpuReduceGatherAndBroadcastExactly) {
  for (const int ranks : {2, 3, 4}) {
    for (const auto& result : play(ranks, "exact operations", "auto", "cuda:0")) {
      EXPECT_EQ(result.exit_status, 0) << result.errors;
      EXPECT_NE(result.output.find(" on shm: exact"), std::string::npos) << result.output;
    }
  }
}

TEST(CudaWorld, RanksThatShareAGpuHaveTheBitsOfTheCpu) {
  const auto expected = play(4, "operations", "shm", "cpu");
  const auto found = play(4, "operations", "auto", "cuda:0");
  for (size_t rank = 0; rank < found.size(); ++rank) {
    EXPECT_EQ(found[rank].output, expected[rank].output) << found[rank].errors;
    EXPECT_FALSE(found[rank].output.empty());
  }
}

TEST(CudaWorld, SeveralRanksOfNcclReduceGatherAndBroadcastExactly) {
  for (const int ranks : {2, 4}) {
    for (const auto& result : play(ranks, "exact operations", "nccl", "cuda", true)) {
      EXPECT_EQ(result.exit_status, 0) << result.errors;
      EXPECT_NE(result.output.find(" on nccl: exact"), std::string::npos) << result.output;
    }
  }
}

// The order of sums is that of the CPU's backends, whatever carries them.
TEST(CudaWorld, SeveralRanksOfNcclHaveTheBitsOfTheCpu) {
  for (const int ranks : {2, 3, 4}) {
    const auto expected = play(ranks, "operations", "gloo", "cpu", true);
    const auto found = play(ranks, "operations", "nccl", "cuda", true);
    for (size_t rank = 0; rank < found.size(); ++rank) {
      EXPECT_EQ(answer_of(found[rank]), answer_of(expected[rank])) << found[rank].errors;
    }
  }
}

TEST(CudaWorld, NcclsOwnSumsAreAChoice) {
  auto program = on_nccl("exact operations");
  program.variables = {"FULLSHARD_DEVICE_SUMS=nccl"};
  for (const auto& result : run_rank_program(2, program)) {
    EXPECT_EQ(result.exit_status, 0) << result.errors;
    EXPECT_NE(result.output.find(" on nccl: exact"), std::string::npos) << result.output;
  }
}

// As under srun --gpus-per-task=1, or where ranks name their GPU: what counts is which one it is.
TEST(CudaWorld, RanksThatNameTheirGpuOrSeeOnlyOneUseNccl) {
  auto named = on_nccl("exact operations", "cuda:0");
  named.arguments[1] = "auto";
  auto visible = on_nccl("exact operations");
  visible.arguments[1] = "auto";
  visible.variables = {"CUDA_VISIBLE_DEVICES=0"};
  for (const auto& program : {named, visible}) {
    for (const auto& result : run_rank_program(2, program)) {
      EXPECT_EQ(result.exit_status, 0) << result.errors;
      EXPECT_NE(result.output.find(" on nccl: exact"), std::string::npos) << result.output;
    }
  }
}

// Half a gigabyte of GPU 0 for every rank of the host, otherwise. Needs two GPUs to fail.
TEST(CudaWorld, EveryRankHasAContextOnItsOwnGpuOnly) {
  for (const bool separate_hosts : {false, true}) {
    const int ranks = separate_hosts ? 2 : std::max(comm::num_cuda_devices(), 2);
    for (const auto& result : play(ranks, "contexts", "auto", "cuda", separate_hosts)) {
      EXPECT_EQ(result.exit_status, 0) << result.errors;
      EXPECT_NE(result.output.find(": contexts on 1 GPU\n"), std::string::npos) << result.output;
    }
  }
}

int num_times(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// NCCL itself says how many it has made.
TEST(CudaWorld, GroupsThatNobodyUsesHaveNoCommunicator) {
  const std::vector<std::string> scenes = {"no group is used", "one group is used",
                                           "two groups are used"};
  for (int used = 0; used < 3; ++used) {
    auto program = on_nccl(scenes[static_cast<size_t>(used)]);
    program.variables = {"NCCL_DEBUG=INFO"};
    for (const auto& result : run_rank_program(4, program)) {
      EXPECT_EQ(result.exit_status, 0) << result.errors;
      EXPECT_EQ(num_times(result.output, " of 3 groups\n"), 1) << result.output;
      EXPECT_EQ(num_times(result.output, "Init COMPLETE"), used) << result.output;
    }
  }
}

// The two seconds are for the watch; letting go and the start of it may take some more.
TEST(CudaWorld, ADeadRankIsNamedAndAllCommunicatorsAreGivenUp) {
  for (const int ranks : {2, 4}) {
    const auto results = run_rank_program(ranks, on_nccl("rank 1 dies on a device"));
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& result = results[static_cast<size_t>(rank)];
      if (rank == 1) {
        EXPECT_EQ(result.exit_status, 137);
        continue;
      }
      EXPECT_EQ(result.exit_status, 1) << result.output << result.errors;
      EXPECT_NE(result.errors.find("waits for rank 1, which died"), std::string::npos)
          << result.errors;
      EXPECT_EQ(result.output.find("takes calls"), std::string::npos) << result.output;
      EXPECT_LT(result.ended, 90) << "it ended by itself";
    }
  }
}

TEST(CudaWorld, ARankThatDoesNotComeIsNamedAfterTheStepsLimit) {
  auto program = on_nccl("rank 1 does not come");
  program.expendable = 1;
  const auto results = run_rank_program(2, program);
  EXPECT_EQ(results[0].exit_status, 1) << results[0].output << results[0].errors;
  EXPECT_NE(results[0].errors.find("waits for rank 1, which has not come for "), std::string::npos)
      << results[0].errors;
  EXPECT_NE(results[0].errors.find("(step timeout)"), std::string::npos) << results[0].errors;
  EXPECT_EQ(results[0].output.find("takes calls"), std::string::npos) << results[0].output;
  EXPECT_LT(results[0].ended, 90) << "it ended by itself";
}

TEST(CudaWorld, ARankThatDoesNotComeToTheStartOfNcclIsNamed) {
  auto program = on_nccl("rank 1 does not start");
  program.expendable = 1;
  const auto results = run_rank_program(2, program);
  EXPECT_EQ(results[0].exit_status, 1) << results[0].output << results[0].errors;
  EXPECT_NE(results[0].errors.find("of the start of nccl"), std::string::npos) << results[0].errors;
  EXPECT_NE(results[0].errors.find("waits for rank 1, which has not come for "), std::string::npos)
      << results[0].errors;
  EXPECT_NE(results[0].errors.find("(init timeout)"), std::string::npos) << results[0].errors;
}

TEST(CudaWorld, NcclRefusesRanksThatShareAGpuInWords) {
  const auto results =
      run_rank_processes(comm::num_cuda_devices() + 1, {"--backend", "nccl", "--device", "cuda"});
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_NE(result.errors.find("nccl takes one rank per GPU"), std::string::npos)
        << result.errors;
  }
}

}  // namespace
}  // namespace fullshard::testing
