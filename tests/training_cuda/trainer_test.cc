// SPDX-License-Identifier: Apache-2.0
// The training loop on a GPU, which brings the next step's data while a step is computed.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "tests/gpu.h"
#include "tests/train/curves.h"

namespace fullshard::testing {
namespace {

constexpr double kLossTolerance = 1e-4;  // of fp32 losses over 20 steps, another order of sums

class CudaCurves : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaCurves, AreThoseOfTheCpu) {
  at::globalContext().setAllowTF32CuBLAS(false);
  const auto configuration = fsdp_configuration("FULL_SHARD");
  const auto expected = losses_on(World::single(), GetParam(), configuration, 1);
  for (const int64_t accumulation : {1, 3}) {
    expect_same_losses(expected,
                       losses_on(World::single(kGpu), GetParam(), configuration, accumulation),
                       kLossTolerance, std::to_string(accumulation) + " micro-batches");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaCurves, ::testing::Values("gpt2", "llama", "bert", "t5"),
                         [](const auto& which) { return which.param; });

TEST(CudaTrainer, EndsAtTheStepWhoseDataIsBroken) {
  EXPECT_EQ(steps_before_a_broken_example(World::single(kGpu)), 3);
}

}  // namespace
}  // namespace fullshard::testing
