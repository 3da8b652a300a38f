// SPDX-License-Identifier: Apache-2.0
// The engine on a GPU trains as the CPU does.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <sstream>

#include "fullshard/memory/device_memory.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"
#include "tests/gpu.h"
#include "tests/training/expectations.h"
#include "tests/training/rank_processes.h"

namespace fullshard::testing {
namespace {

constexpr double kTolerance = 2e-4;  // of fp32 after five steps of AdamW, another order of sums

std::vector<std::pair<std::string, ShardOptions>> shardings() {
  std::vector<std::pair<std::string, ShardOptions>> list;
  for (int i = 1; i <= 5; ++i) {
    ShardOptions options;
    options.sharding.strategy = static_cast<Strategy>(i);
    list.emplace_back(std::string(name_of(options.sharding.strategy)), options);
  }
  for (int stage = 0; stage <= 3; ++stage) {
    ShardOptions options;
    options.sharding.zero_stage = stage;
    list.emplace_back("stage " + std::to_string(stage), options);
  }
  return list;
}

class NoTf32 : public ::testing::Environment {
 public:
  void SetUp() override {
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
  }
};
const auto* const kNoTf32 = ::testing::AddGlobalTestEnvironment(new NoTf32);

TEST(CudaTraining, EveryStrategyOfOneRankEqualsTheCpu) {
  const TrainingOptions training;
  const auto expected = train_unsharded(training, 1);
  for (const auto& [what, options] : shardings()) {
    SCOPED_TRACE(what);
    expect_close(train_sharded(World::single(kGpu), options, training), expected, kTolerance);
  }
}

TEST(CudaTraining, GivesTheSameBitsOnEveryRun) {
  const TrainingOptions training;
  const auto first = train_sharded(World::single(kGpu), {}, training);
  for (int run = 0; run < 3; ++run) {
    expect_same_bits(train_sharded(World::single(kGpu), {}, training), first, "another run");
  }
}

TEST(CudaTraining, AccumulatesMicroBatches) {
  TrainingOptions training{.steps = 3, .micro_batches = 3};
  const auto expected = train_unsharded(training, 1);
  for (const bool no_sync : {false, true}) {
    training.no_sync = no_sync;
    expect_close(train_sharded(World::single(kGpu), {}, training), expected, kTolerance);
  }
}

TEST(CudaTraining, RecomputesToTheSameBits) {
  TrainingOptions training;
  const auto kept = train_sharded(World::single(kGpu), {}, training);
  training.recompute = true;
  expect_same_bits(train_sharded(World::single(kGpu), {}, training), kept, "recomputed");
}

TEST(CudaTraining, OffloadsActivationsToTheSameBits) {
  ShardOptions options;
  const auto kept = train_sharded(World::single(kGpu), options, {});
  options.offload_activations = true;
  options.offload_activations_min_bytes = 0;
  expect_same_bits(train_sharded(World::single(kGpu), options, {}), kept, "offloaded");
}

TEST(CudaTraining, ComputesInBfloat16WithAnFp32Master) {
  const TrainingOptions training;
  const auto expected = train_unsharded(training, 1);
  ShardOptions options;
  options.param_dtype = at::kBFloat16;
  const auto outcome = train_sharded(World::single(kGpu), options, training);
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], expected.losses[i], 0.03 * expected.losses[i]);
  }
}

// Two processes share the GPU: every sharding gives one digest, that of every other.
TEST(CudaTraining, TwoRanksOnOneGpuGiveTheSameBitsInEveryStrategy) {
  std::string first;
  for (const std::string strategy :
       {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}) {
    SCOPED_TRACE(strategy);
    const auto results = run_rank_processes(2, {"--device", "cuda:0", "--strategy", strategy}, 120);
    ASSERT_EQ(results[0].exit_status, 0) << results[0].errors;
    ASSERT_EQ(results[1].exit_status, 0) << results[1].errors;
    if (first.empty()) first = results[0].output;
    EXPECT_EQ(results[0].output, first);
  }
  EXPECT_EQ(first.substr(0, 7), "digest ");
}

// The recorder's timeline of a step, as the GPU passed it: the gather of a unit runs while its
// stream still computes the unit before.
TEST(CudaOverlap, GathersOfTheNextUnitLieUnderTheComputationOfThis) {
  const auto results = run_rank_processes(
      2, {"--device", "cuda:0", "--width", "2048", "--steps", "4", "--timeline"}, 120);
  ASSERT_EQ(results[0].exit_status, 0) << results[0].errors;
  std::istringstream lines(results[0].output);
  int gathers = 0, early = 0;
  std::string word, unit;
  double began = 0, ended = 0, needed = 0;
  while (lines >> word && word == "gather" && lines >> began >> ended >> needed &&
         std::getline(lines, unit)) {
    if (unit == " the gradient norm") continue;
    EXPECT_LE(began, ended);
    ++gathers;
    if (began < needed) ++early;
  }
  EXPECT_GE(gathers, 4) << results[0].output;
  // The first of forward and the first of backward have nothing to lie under.
  EXPECT_GE(early, gathers - 2) << results[0].output;
}

// Each rank takes itself for a host, so NCCL lets them share a GPU and goes over the loopback: the
// only way to see several of its ranks where there is one GPU.
TEST(CudaTraining, RanksOfNcclGiveTheBitsOfSharedOnes) {
  for (const int ranks : {2, 4}) {
    const RankProgram shared{.arguments = {"--device", "cuda:0"}, .limit_s = 120};
    const auto expected = run_rank_program(ranks, shared);
    ASSERT_EQ(expected[0].exit_status, 0) << expected[0].errors;
    for (const std::string strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"}) {
      SCOPED_TRACE(strategy);
      const auto results = run_rank_program(
          ranks, {.arguments = {"--device", "cuda", "--backend", "nccl", "--strategy", strategy},
                  .separate_hosts = true,
                  .limit_s = 120});
      for (const auto& result : results) ASSERT_EQ(result.exit_status, 0) << result.errors;
      EXPECT_EQ(results[0].output, expected[0].output);
    }
  }
}

TEST(CudaTraining, RanksOfNcclWhoseGraphsDifferDoNotWaitInVain) {
  for (const int ranks : {2, 4}) {
    const auto results = run_rank_program(ranks, {.name = "branches_rank",
                                                  .arguments = {"nccl", "cuda", "8"},
                                                  .separate_hosts = true,
                                                  .limit_s = 120});
    for (const auto& result : results) {
      EXPECT_EQ(result.exit_status, 0) << result.errors;
      EXPECT_EQ(result.output, "same\n");
    }
  }
}

// It would wait for ever for its GPU otherwise, and save what it finds there.
TEST(CudaTraining, ADeadRankOfNcclIsNamed) {
  const RankProgram program{.arguments = {"--device", "cuda", "--backend", "nccl", "--fault",
                                          "kill", "--at", "start of backward"},
                            .separate_hosts = true,
                            .limit_s = 120};
  const auto results = run_rank_program(2, program);
  EXPECT_EQ(results[1].exit_status, 128 + 9);
  EXPECT_EQ(results[0].exit_status, 1);
  EXPECT_NE(results[0].errors.find("waits for rank 1, which died"), std::string::npos)
      << results[0].errors;
  EXPECT_LT(results[0].ended, 90);
}

TEST(CudaTraining, ADeadRankOfASharedGpuIsNamed) {
  const RankProgram program{
      .arguments = {"--device", "cuda:0", "--fault", "kill", "--at", "start of backward"},
      .limit_s = 120};
  const auto results = run_rank_program(2, program);
  EXPECT_EQ(results[1].exit_status, 128 + 9);
  EXPECT_EQ(results[0].exit_status, 1);
  EXPECT_NE(results[0].errors.find("rank 1"), std::string::npos) << results[0].errors;
  EXPECT_LT(results[0].ended, 60);
}

struct Wide {
  TrainingOptions training{.model = {.vocabulary = 512, .width = 512, .heads = 8, .layers = 4}};
};

TEST(CudaMemory, NothingIsAllocatedFromTheDriverAfterTheSecondStep) {
  const TrainingOptions training = Wide().training;
  auto model = make_model(training);
  auto sharded = shard(model, World::single(kGpu), {.param_dtype = at::kBFloat16});
  AdamW optimizer(sharded, {});
  int64_t after_second = 0;
  for (int step = 0; step < 6; ++step) {
    model(make_batch(training, step, 0, 0).to(kGpu)).backward();
    sharded.clip_grad_norm(1.0);
    optimizer.step();
    optimizer.zero_grad();
    if (step == 1) after_second = memory::device_memory(kGpu).num_driver_calls;
  }
  EXPECT_EQ(memory::device_memory(kGpu).num_driver_calls, after_second);
  EXPECT_EQ(memory::device_memory(kGpu).num_retries, 0);
}

TEST(CudaMemory, TheLedgerAccountsForWhatTheAllocatorHoldsAtRest) {
  const TrainingOptions training = Wide().training;
  const int64_t before = memory::device_memory(kGpu).allocated_bytes;
  auto model = make_model(training);
  auto sharded = shard(model, World::single(kGpu), {.param_dtype = at::kBFloat16});
  AdamW optimizer(sharded, {});
  model(make_batch(training, 0, 0, 0).to(kGpu)).backward();
  optimizer.step();
  optimizer.zero_grad();
  const auto held = static_cast<double>(memory::device_memory(kGpu).allocated_bytes - before);
  const auto planned = static_cast<double>(sharded.ledger().held_total());
  EXPECT_NEAR(held, planned, 0.02 * planned) << sharded.ledger().table();
}

TEST(CudaMisuse, NamesAReleasedParameter) {
  auto model = make_model({});
  { auto sharded = shard(model, World::single(kGpu)); }
  try {
    model->parameters()[0].sum().item<float>();
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("the ShardedModel that held this parameter is gone"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace fullshard::testing
