// SPDX-License-Identifier: Apache-2.0
// Updates and norms by the kernels of the GPU: the bits of the CPU's loops.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fullshard/engine/gradients/device_norm_kernels.h"
#include "fullshard/engine/gradients/exponent_kernels.h"
#include "fullshard/engine/storage/master_halves.h"
#include "fullshard/optim/cuda/device_rules.h"
#include "fullshard/optim/cuda/device_table.h"
#include "fullshard/optim/kernels/adagrad_kernels.h"
#include "fullshard/optim/kernels/adamw_kernels.h"
#include "fullshard/optim/kernels/lamb_kernels.h"
#include "fullshard/optim/kernels/lion_kernels.h"
#include "fullshard/optim/kernels/sgd_kernels.h"
#include "tests/emulated_cuda/kernel_run.h"
#include "tests/optim_cuda/step_arrays.h"

namespace fullshard::emulation {
namespace {

using fullshard::testing::StepArrays;
using fullshard::testing::StepDtypes;

constexpr uint64_t kRounding = 77;

// Around the borders of vectors, of blocks' strides and of chunks.
std::vector<StepArrays> arrays_of(const StepDtypes& dtypes, int shift) {
  std::vector<StepArrays> arrays;
  for (const int64_t numel : {1, 3, 4, 511, 1024, 1027, 4099}) {
    arrays.push_back(StepArrays::random(numel, dtypes, static_cast<uint64_t>(numel), shift));
    arrays.back().tensor = static_cast<int>(arrays.size()) - 1;
  }
  return arrays;
}

const optim::DevicePiece* pieces_in(const optim::DeviceTable& table) {
  return static_cast<const optim::DevicePiece*>(table.pieces_on_device().const_data_ptr());
}

const optim::DeviceBlock* blocks_in(const optim::DeviceTable& table) {
  return static_cast<const optim::DeviceBlock*>(table.blocks_on_device().const_data_ptr());
}

// One launch for each segment of the table, as device_step.cc makes them.
template <class Use>
void for_each_launch(const optim::DeviceTable& table, const double* factor, const Use& use) {
  for (const auto& segment : table.segments()) {
    optim::DeviceLaunch launch;
    launch.pieces = pieces_in(table);
    launch.blocks = blocks_in(table) + segment.first_block;
    launch.num_blocks = segment.num_blocks;
    launch.first_setting = segment.first_setting;
    launch.num_settings = segment.num_settings;
    launch.num_states = table.num_states();
    launch.storage = segment.storage;
    launch.rounding = kRounding;
    launch.factor = factor;
    use(launch, segment);
  }
}

template <class Step>
void step_by_kernels(const std::vector<StepArrays>& arrays, const Step& step,
                     const double* factor = nullptr) {
  optim::DeviceTable table;
  table.set(fullshard::testing::pieces_of(arrays), at::kCPU);
  for_each_launch(table, factor, [&](const optim::DeviceLaunch& launch, const auto&) {
    optim::launch_step(launch, &step, kNoStream);
  });
}

template <class Step>
void expect_bits_of_the_cpu(const Step& step, const StepDtypes& dtypes,
                            void (*on_cpu)(const Step&, const optim::PieceElements&),
                            const std::string& what) {
  for (const bool in_halves : {false, true}) {
    if (in_halves && dtypes.master != at::kFloat) continue;
    for (const int shift : {0, 1}) {
      auto cpu = arrays_of(dtypes, shift);
      auto own = fullshard::testing::copies_on(at::kCPU, cpu, shift);
      if (in_halves) {
        for (auto& one : own) one.halve();
      }
      step_by_kernels(own, step);
      for (const auto& one : cpu) on_cpu(step, one.elements(kRounding));
      if (in_halves) {
        for (auto& one : own) one.join();
        for (auto& one : cpu) one.shown = engine::nearest_halves(one.master);
      }
      fullshard::testing::expect_same_bits(own, cpu, what + (in_halves ? " in halves" : ""));
    }
  }
}

const optim::AdamWStep kAdamW{.clip = 0.37,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .decay = 1 - 3e-4,
                              .step_size = 3e-2,
                              .root_correction = 0.3,
                              .epsilon = 1e-8};

TEST(EmulatedOptimizers, GiveTheBitsOfTheCpu) {
  expect_bits_of_the_cpu(kAdamW, {}, optim::adamw_step, "AdamW");
  expect_bits_of_the_cpu(optim::SgdStep{.clip = 0.5, .lr = 0.1, .momentum = 0.9, .nesterov = true},
                         {.num_states = 1}, optim::sgd_step, "SGD with Nesterov momentum");
  expect_bits_of_the_cpu(optim::SgdStep{.clip = 0.5, .lr = 0.1, .weight_decay = 0.01},
                         {.num_states = 0}, optim::sgd_step, "SGD");
  expect_bits_of_the_cpu(
      optim::AdagradStep{.clip = 0.5, .lr = 0.01, .weight_decay = 0.1, .epsilon = 1e-10},
      {.num_states = 1, .first_is_square = true}, optim::adagrad_step, "Adagrad");
  expect_bits_of_the_cpu(
      optim::LionStep{.clip = 0.5, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.999, .lr = 1e-4},
      {.num_states = 1}, optim::lion_step, "Lion");
}

TEST(EmulatedOptimizers, TakeEveryDtype) {
  const std::vector<StepDtypes> all = {
      {at::kFloat, at::kBFloat16, at::kFloat, at::kBFloat16},
      {at::kFloat, at::kHalf, at::kFloat, at::kHalf},
      {at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat},
      {at::kHalf, at::kHalf, at::kFloat, at::ScalarType::Undefined},
      {at::kDouble, at::kDouble, at::kDouble, at::ScalarType::Undefined},
  };
  for (const auto& dtypes : all) {
    const auto arrays = arrays_of(dtypes, 0);
    const auto own = fullshard::testing::copies_on(at::kCPU, arrays);
    step_by_kernels(own, kAdamW);
    for (const auto& one : arrays) optim::adamw_step(kAdamW, one.elements(kRounding));
    fullshard::testing::expect_same_bits(own, arrays, c10::toString(dtypes.master));
  }
}

TEST(EmulatedOptimizers, TakeTheFactorFromTheDeviceAndLeaveOutASpoiltStep) {
  const auto before = arrays_of({}, 0);
  const auto cpu = fullshard::testing::copies_on(at::kCPU, before);
  for (const auto& one : cpu) optim::adamw_step(kAdamW, one.elements(kRounding));
  auto step = kAdamW;
  step.clip = 99;  // must not be used
  const double factor = 0.37, spoilt = std::numeric_limits<double>::quiet_NaN();
  const auto own = fullshard::testing::copies_on(at::kCPU, before);
  step_by_kernels(own, step, &spoilt);
  fullshard::testing::expect_same_bits(own, before, "left out");
  step_by_kernels(own, step, &factor);
  fullshard::testing::expect_same_bits(own, cpu, "by the device's factor");
}

TEST(EmulatedLamb, UpdatesMomentsThenMovesByRatios) {
  const optim::LambStep step{.clip = 0.5,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .epsilon = 1e-6,
                             .weight_decay = 0.01,
                             .step_size = 1e-2};
  const auto cpu = arrays_of({}, 0);
  const auto own = fullshard::testing::copies_on(at::kCPU, cpu);
  const auto num_tensors = static_cast<int>(cpu.size());
  optim::DeviceTable table;
  table.set(fullshard::testing::pieces_of(own), at::kCPU);
  const auto sums = run_in_orders([&] {
    const auto again = fullshard::testing::copies_on(at::kCPU, cpu);
    optim::DeviceTable own_table;
    own_table.set(fullshard::testing::pieces_of(again), at::kCPU);
    const Output by_block({own_table.num_blocks(), 2}, at::kDouble);
    const Output by_tensor({num_tensors, 2}, at::kDouble);
    auto* squares = by_block.data<optim::LambSquares>();
    for_each_launch(own_table, nullptr, [&](optim::DeviceLaunch launch, const auto& segment) {
      launch.squares = squares + segment.first_block;
      optim::launch_moments(launch, &step, kNoStream);
    });
    optim::launch_squares_by_tensor(pieces_in(own_table), num_tensors, squares,
                                    by_tensor.data<optim::LambSquares>(), kNoStream);
    return Outputs{by_tensor, Output(again.back().states[1])};
  });
  for (size_t i = 0; i < cpu.size(); ++i) {
    const auto expected = optim::lamb_moments(step, cpu[i].elements(kRounding));
    const auto found = sums[0][static_cast<int64_t>(i)];
    EXPECT_NEAR(found[0].item<double>() / expected.parameter, 1, 1e-12);
    EXPECT_NEAR(found[1].item<double>() / expected.direction, 1, 1e-12);
  }
  EXPECT_TRUE(at::equal(sums[1], cpu.back().states[1]));
  const auto ratios = at::rand({num_tensors}) + 0.1;
  const auto moved = fullshard::testing::copies_on(at::kCPU, cpu);
  table.set(fullshard::testing::pieces_of(moved), at::kCPU);
  for_each_launch(table, nullptr, [&](optim::DeviceLaunch launch, const auto&) {
    launch.ratios = ratios.data_ptr<float>();
    optim::launch_step(launch, &step, kNoStream);
  });
  for (size_t i = 0; i < cpu.size(); ++i) {
    auto scaled = step;
    scaled.step_size *= ratios[static_cast<int64_t>(i)].item<float>();
    optim::lamb_step(scaled, cpu[i].elements(kRounding));
  }
  fullshard::testing::expect_same_bits(moved, cpu, "LAMB");
}

TEST(EmulatedLamb, ClampsRatios) {
  // [shards][tensors][2]: squares of parameter and direction.
  const auto squares =
      at::tensor({9.0, 1.0, 0.0, 4.0, 1e6, 1.0, 16.0, 0.25, 0.0, 0.0, 1e6, 0.0}, at::kDouble);
  auto ratios = at::empty({3});
  optim::launch_trust_ratios(reinterpret_cast<const optim::LambSquares*>(squares.data_ptr()), 2, 3,
                             {0.01f, 10.0f}, ratios.data_ptr<float>(), kNoStream);
  EXPECT_EQ(ratios[0].item<float>(), 5.0f / static_cast<float>(std::sqrt(1.25)));
  EXPECT_EQ(ratios[1].item<float>(), 1.0f);
  EXPECT_EQ(ratios[2].item<float>(), 10.0f);
}

struct NormTable {
  std::vector<at::Tensor> values;
  std::vector<engine::NormPiece> pieces;
  int num_blocks = 0;

  void add(const at::Tensor& tensor, engine::NormDtype dtype) {
    const auto result = static_cast<int64_t>(pieces.size());
    const auto blocks =
        static_cast<int32_t>((tensor.numel() + engine::kNormChunk - 1) / engine::kNormChunk);
    pieces.push_back({tensor.data_ptr(), tensor.numel(), result, num_blocks, blocks, dtype});
    values.push_back(tensor);
    num_blocks += blocks;
  }
  at::Tensor run(engine::NormKind kind) const {
    return run_in_orders([&] {
      const Output partials({num_blocks}, at::kDouble);
      const Output results({static_cast<int64_t>(pieces.size())}, at::kDouble);
      engine::launch_norms(kind, pieces.data(), static_cast<int>(pieces.size()), num_blocks,
                           partials.data<double>(), results.data<double>(), kNoStream);
      return Outputs{results};
    })[0];
  }
};

NormTable norm_table() {
  NormTable table;
  for (const auto& [dtype, kind] : {std::pair{at::kFloat, engine::NormDtype::fp32},
                                    {at::kBFloat16, engine::NormDtype::bf16},
                                    {at::kHalf, engine::NormDtype::fp16},
                                    {at::kDouble, engine::NormDtype::fp64}}) {
    for (const int64_t numel : {1, 9, 2051, 40'000}) {
      for (const int shift : {0, 1, 3}) {
        table.add(shifted_by(at::randn({numel}).to(dtype), shift), kind);
      }
    }
  }
  return table;
}

TEST(EmulatedNorms, SumSquaresAndFindTheLargest) {
  auto table = norm_table();
  const auto squares = table.run(engine::NormKind::sum_of_squares);
  const auto largest = table.run(engine::NormKind::largest);
  for (size_t i = 0; i < table.values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const auto exact = table.values[i].to(at::kDouble);
    EXPECT_NEAR(squares[at].item<double>() / exact.square().sum().item<double>(), 1, 1e-12) << i;
    EXPECT_EQ(largest[at].item<double>(), exact.abs().max().item<double>()) << i;
  }
  table.values[7].fill_(std::numeric_limits<double>::quiet_NaN());
  for (const auto kind : {engine::NormKind::sum_of_squares, engine::NormKind::largest}) {
    const auto found = table.run(kind).isfinite().logical_not();
    EXPECT_EQ(found.sum().item<int64_t>(), 1);
    EXPECT_TRUE(found[7].item<bool>());
  }
}

TEST(EmulatedNorms, BecomeTheFactorOfGradients) {
  const auto numbers = at::tensor({9.0, 16.0}, at::kDouble);
  const auto outcome = [&](engine::ClipSettings settings) {
    auto values = at::empty({2}, at::kDouble);
    engine::launch_clip_factor(engine::NormKind::sum_of_squares, numbers.data_ptr<double>(), 2,
                               settings, values.data_ptr<double>(), kNoStream);
    return std::pair(values[0].item<double>(), values[1].item<double>());
  };
  EXPECT_EQ(outcome({10.0f, 1}), std::pair(5.0, 1.0));
  EXPECT_EQ(outcome({1.0f, 1}), std::pair(5.0, static_cast<double>(1.0f / (5.0f + 1e-6f))));
  EXPECT_EQ(outcome({0, 1024}), std::pair(5.0 / 1024, 1.0 / 1024));
  numbers[1] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(outcome({1.0f, 1}).second));
}

TEST(EmulatedWatch, FindsNumbersWhoseExponentIsFull) {
  const engine::ExponentBits of_fp32{.low = 0x7f800000u}, of_bf16{0x7f80u, 0x7f800000u};
  const auto is_found = [](const at::Tensor& values, const engine::ExponentBits& bits) {
    int32_t flag = 0;
    const auto packs = static_cast<int64_t>(values.nbytes() / 16);
    engine::launch_find_exponent(&flag, values.data_ptr(), packs, bits, kNoStream);
    return flag == 1;
  };
  for (const int64_t place : {0, 1, 4'000, 299'999}) {
    auto values = at::randn({300'000});
    EXPECT_FALSE(is_found(values, of_fp32));
    values[place] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(is_found(values, of_fp32)) << place;
    EXPECT_TRUE(is_found(values.to(at::kBFloat16), of_bf16)) << place;
  }
}

}  // namespace
}  // namespace fullshard::emulation
