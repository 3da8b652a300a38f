// SPDX-License-Identifier: Apache-2.0
// LAMB on the GPU: states and steps have the CPU's bits; norms are sums in another order.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fullshard/optim/kernels/lamb_kernels.h"
#include "tests/gpu.h"
#include "tests/optim_cuda/step_arrays.h"

namespace fullshard::testing {
namespace {

const optim::LambStep kStep{.clip = 0.5,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .epsilon = 1e-6,
                            .weight_decay = 0.01,
                            .step_size = 1e-2};

std::vector<StepArrays> random_arrays() {
  std::vector<StepArrays> arrays;
  for (const auto numel : awkward_sizes()) {
    arrays.push_back(StepArrays::random(numel, {}, static_cast<uint64_t>(numel)));
    arrays.back().tensor = static_cast<int>(arrays.size()) - 1;
  }
  return arrays;
}

TEST(CudaLamb, UpdatesMomentsWithTheBitsOfTheCpu) {
  const auto cpu = random_arrays();
  const auto cuda = copies_on(kGpu, cpu);
  optim::DeviceTable table;
  table.set(pieces_of(cuda), kGpu);
  const optim::DevicePass pass{.table = table, .settings = {{}}};
  const auto tensors = static_cast<int64_t>(cpu.size());
  const auto found = optim::moments_on_device(pass, {kStep}, tensors + 1).cpu();
  for (size_t i = 0; i < cpu.size(); ++i) {
    const auto expected = optim::lamb_moments(kStep, cpu[i].elements(0));
    const auto* sums = found.const_data_ptr<double>() + 2 * i;
    EXPECT_NEAR(sums[0] / expected.parameter, 1, 1e-12) << cpu[i].master.numel();
    EXPECT_NEAR(sums[1] / expected.direction, 1, 1e-12) << cpu[i].master.numel();
  }
  EXPECT_EQ(found[tensors][0].item<double>(), 0);  // a tensor without a piece
  expect_same_bits(cuda, cpu, "LAMB's moments");
}

TEST(CudaLamb, MovesParametersByTheRatioOfTheirTensor) {
  const auto cpu = random_arrays();
  const auto cuda = copies_on(kGpu, cpu);
  auto ratios = at::empty({static_cast<int64_t>(cpu.size())});
  for (size_t i = 0; i < cpu.size(); ++i) {
    const float ratio = 0.1f + 0.37f * static_cast<float>(i);
    ratios[static_cast<int64_t>(i)] = ratio;
    auto step = kStep;
    step.step_size *= ratio;
    optim::lamb_step(step, cpu[i].elements(0));
  }
  optim::DeviceTable table;
  table.set(pieces_of(cuda), kGpu);
  optim::step_on_device({.table = table, .settings = {{}}}, {kStep}, ratios.to(kGpu));
  expect_same_bits(cuda, cpu, "LAMB's step");
}

TEST(CudaLamb, ClampsRatiosAndLeavesZerosAlone) {
  // [shards][tensors][2]: squares of parameter and direction.
  const auto squares =
      at::tensor({9.0, 1.0, 0.0, 4.0, 1e6, 1.0, 1.0, 4.0, 16.0, 0.25, 0.0, 0.0, 1e6, 0.0, 0.0, 0.0},
                 at::kDouble)
          .view({2, 4, 2});
  const auto ratios = optim::trust_ratios_on_device(squares.to(kGpu), 0.01f, 10.0f).cpu();
  const float first = static_cast<float>(std::sqrt(25.0)) / static_cast<float>(std::sqrt(1.25));
  EXPECT_EQ(ratios[0].item<float>(), first);
  EXPECT_EQ(ratios[1].item<float>(), 1.0f);
  EXPECT_EQ(ratios[2].item<float>(), 10.0f);
  EXPECT_EQ(ratios[3].item<float>(), 0.5f);
}

TEST(CudaLamb, IsTheSameInEveryRun) {
  const auto cpu = random_arrays();
  const auto run = [&] {
    const auto cuda = copies_on(kGpu, cpu);
    optim::DeviceTable table;
    table.set(pieces_of(cuda), kGpu);
    return optim::moments_on_device({.table = table, .settings = {{}}}, {kStep},
                                    static_cast<int64_t>(cpu.size()))
        .cpu();
  };
  const auto first = run();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(run(), first)) << i;
}

}  // namespace
}  // namespace fullshard::testing
