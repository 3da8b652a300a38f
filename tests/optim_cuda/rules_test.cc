// SPDX-License-Identifier: Apache-2.0
// Every update rule on the GPU gives the bits of the CPU.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fullshard/engine/storage/master_halves.h"
#include "fullshard/optim/kernels/adagrad_kernels.h"
#include "fullshard/optim/kernels/adamw_kernels.h"
#include "fullshard/optim/kernels/lion_kernels.h"
#include "fullshard/optim/kernels/sgd_kernels.h"
#include "tests/gpu.h"
#include "tests/optim_cuda/step_arrays.h"

namespace fullshard::testing {
namespace {

optim::AdamWStep adamw_constants(int step) {
  optim::AdamWStep constants{.clip = 0.37, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
  constants.decay = 1 - 3e-3 * 0.1;
  constants.step_size = 3e-3 / (1 - std::pow(0.9, step));
  constants.root_correction = std::sqrt(1 - std::pow(0.95, step));
  return constants;
}

void step_on_cpu(const optim::AdamWStep& step, const optim::PieceElements& piece) {
  optim::adamw_step(step, piece);
}
void step_on_cpu(const optim::SgdStep& step, const optim::PieceElements& piece) {
  optim::sgd_step(step, piece);
}
void step_on_cpu(const optim::AdagradStep& step, const optim::PieceElements& piece) {
  optim::adagrad_step(step, piece);
}
void step_on_cpu(const optim::LionStep& step, const optim::PieceElements& piece) {
  optim::lion_step(step, piece);
}

struct Case {
  StepDtypes dtypes = {};
  std::vector<int64_t> sizes = awkward_sizes();
  int cpu_shift = 0;
  int cuda_shift = 0;
  int num_settings = 1;
  size_t num_launches = 1;
  bool in_halves = false;  // the GPU's masters
};

// Three steps on both; `settings` gives the constants of each setting of a step.
template <class Settings>
void expect_cpu_bits(const Case& given, const Settings& settings, const std::string& what) {
  std::vector<StepArrays> cpu;
  for (size_t i = 0; i < given.sizes.size(); ++i) {
    cpu.push_back(StepArrays::random(given.sizes[i], given.dtypes, 100 + i, given.cpu_shift));
    cpu.back().tensor = static_cast<int>(i);
    cpu.back().setting = static_cast<int>(i) % given.num_settings;
  }
  auto cuda = copies_on(kGpu, cpu, given.cuda_shift);
  if (given.in_halves) {
    for (auto& one : cuda) one.halve();
  }
  optim::DeviceTable table;
  for (int step = 1; step <= 3; ++step) {
    const auto rounding = optim::RoundingKey::of_step(17, step);
    const auto steps = settings(step);
    for (const auto& one : cpu) {
      step_on_cpu(steps[static_cast<size_t>(one.setting)], one.elements(rounding));
    }
    table.set(pieces_of(cuda), kGpu);
    optim::DevicePass pass{.table = table,
                           .settings = std::vector<optim::PieceSetting>(steps.size())};
    pass.rounding = rounding;
    optim::step_on_device(pass, steps);
  }
  EXPECT_EQ(table.num_piece_uploads(), 1) << what;
  EXPECT_EQ(table.segments().size(), given.num_launches) << what;
  if (given.in_halves) {
    for (auto& one : cuda) one.join();
    for (auto& one : cpu) one.shown = engine::nearest_halves(one.master);
  }
  expect_same_bits(cuda, cpu, what);
}

std::vector<optim::AdamWStep> adamw(int step) { return {adamw_constants(step)}; }

TEST(CudaAdamW, GivesTheBitsOfTheCpu) { expect_cpu_bits({}, adamw, "AdamW"); }

TEST(CudaAdamW, WithoutShownValues) {
  Case plain;
  plain.dtypes.shown = at::ScalarType::Undefined;
  expect_cpu_bits(plain, adamw, "AdamW, nothing shown");
}

TEST(CudaAdamW, AddsL2AsAdamDoes) {
  const auto adam = [](int step) {
    auto constants = adamw_constants(step);
    constants.decay = 1;
    constants.l2 = 0.1;
    return std::vector<optim::AdamWStep>{constants};
  };
  expect_cpu_bits({}, adam, "Adam");
}

TEST(CudaAdamW, TakesEveryDtypeThatTheCpuTakes) {
  const std::vector<StepDtypes> all = {
      {at::kFloat, at::kBFloat16, at::kFloat, at::kBFloat16},
      {at::kFloat, at::kHalf, at::kFloat, at::kHalf},
      {at::kFloat, at::kFloat, at::kBFloat16, at::kBFloat16},
      {at::kBFloat16, at::kBFloat16, at::kBFloat16, at::ScalarType::Undefined},
      {at::kBFloat16, at::kFloat, at::kFloat, at::kFloat},
      {at::kHalf, at::kHalf, at::kFloat, at::ScalarType::Undefined},
      {at::kHalf, at::kFloat, at::kFloat, at::kBFloat16},
      {at::kDouble, at::kDouble, at::kDouble, at::ScalarType::Undefined},
      {at::kDouble, at::kFloat, at::kDouble, at::kBFloat16},
  };
  for (const auto& dtypes : all) {
    Case given;
    given.dtypes = dtypes;
    given.sizes = {1, 3, 4, 1027, 4096, 4099, 100'003};
    expect_cpu_bits(given, adamw,
                    fmt::format("AdamW, master {}, gradient {}, states {}, shown {}",
                                c10::toString(dtypes.master), c10::toString(dtypes.gradient),
                                c10::toString(dtypes.state), c10::toString(dtypes.shown)));
  }
}

TEST(CudaAdamW, ReadsOddAddresses) {
  for (const int shift : {1, 2, 3}) {
    Case given;
    given.sizes = {1, 5, 4096, 10'001};
    given.cpu_shift = shift;
    given.cuda_shift = shift;
    expect_cpu_bits(given, adamw, fmt::format("AdamW, shifted by {}", shift));
  }
}

TEST(CudaAdamW, TakesMastersInHalves) {
  for (const int shift : {0, 1, 2, 3}) {
    Case given;
    given.cpu_shift = shift;
    given.cuda_shift = shift;
    given.in_halves = true;
    expect_cpu_bits(given, adamw, fmt::format("AdamW in halves, shifted by {}", shift));
  }
}

TEST(CudaAdamW, StepsThousandsOfSmallTensorsInTwoLaunches) {
  Case given;
  given.sizes.clear();
  for (int i = 0; i < 3000; ++i) given.sizes.push_back(1 + i % 97);
  given.num_settings = optim::kSettingsPerLaunch + 8;
  given.num_launches = 2;
  const auto many = [&](int step) {
    std::vector<optim::AdamWStep> settings;
    for (int i = 0; i < given.num_settings; ++i) {
      settings.push_back(adamw_constants(step));
      settings.back().step_size *= 1 + 0.1 * i;
    }
    return settings;
  };
  expect_cpu_bits(given, many, "3000 tensors");
}

TEST(CudaSgd, GivesTheBitsOfTheCpu) {
  optim::SgdStep step{.clip = 0.5, .lr = 0.1, .weight_decay = 0.01};
  const auto settings = [&](int) { return std::vector<optim::SgdStep>{step}; };
  Case plain;
  plain.dtypes.num_states = 0;
  expect_cpu_bits(plain, settings, "SGD");
  Case momentum;
  momentum.dtypes.num_states = 1;
  step.momentum = 0.9;
  step.from_gradient = 0.8;
  expect_cpu_bits(momentum, settings, "SGD with momentum");
  step.from_gradient = 1;
  step.nesterov = true;
  expect_cpu_bits(momentum, settings, "SGD with Nesterov momentum");
  plain.in_halves = momentum.in_halves = true;
  expect_cpu_bits(momentum, settings, "SGD with Nesterov momentum, in halves");
  step.momentum = 0;
  expect_cpu_bits(plain, settings, "SGD, in halves");
}

TEST(CudaAdagrad, GivesTheBitsOfTheCpu) {
  Case given;
  given.dtypes.num_states = 1;
  given.dtypes.first_is_square = true;
  const optim::AdagradStep step{.clip = 0.5, .lr = 0.01, .weight_decay = 0.1, .epsilon = 1e-10};
  for (const bool in_halves : {false, true}) {
    given.in_halves = in_halves;
    expect_cpu_bits(
        given, [&](int) { return std::vector<optim::AdagradStep>{step}; },
        in_halves ? "Adagrad in halves" : "Adagrad");
  }
}

TEST(CudaLion, GivesTheBitsOfTheCpu) {
  Case given;
  given.dtypes.num_states = 1;
  const optim::LionStep step{.clip = 0.5, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.999, .lr = 1e-4};
  for (const bool in_halves : {false, true}) {
    given.in_halves = in_halves;
    expect_cpu_bits(
        given, [&](int) { return std::vector<optim::LionStep>{step}; },
        in_halves ? "Lion in halves" : "Lion");
  }
}

TEST(CudaStep, TakesTheFactorFromTheDevice) {
  const auto cpu = std::vector{StepArrays::random(100'003, {}, 3)};
  const auto cuda = copies_on(kGpu, cpu);
  optim::adamw_step(adamw_constants(1), cpu[0].elements(0));
  auto constants = adamw_constants(1);
  constants.clip = 99;  // must not be used
  optim::DeviceTable table;
  table.set(pieces_of(cuda), kGpu);
  optim::DevicePass pass{.table = table, .settings = {{}}};
  pass.factor_on_device = at::full({1}, 0.37, at::TensorOptions().dtype(at::kDouble).device(kGpu));
  optim::step_on_device(pass, std::vector{constants});
  expect_same_bits(cuda, cpu, "AdamW, factor on the device");
}

TEST(CudaStep, ChangesNothingWhenTheFactorIsNotFinite) {
  const auto cpu = std::vector{StepArrays::random(100'003, {}, 3)};
  const auto cuda = copies_on(kGpu, cpu);
  optim::DeviceTable table;
  table.set(pieces_of(cuda), kGpu);
  optim::DevicePass pass{.table = table, .settings = {{}}};
  pass.factor_on_device = at::full({1}, std::numeric_limits<double>::quiet_NaN(),
                                   at::TensorOptions().dtype(at::kDouble).device(kGpu));
  optim::step_on_device(pass, std::vector{adamw_constants(1)});
  expect_same_bits(cuda, cpu, "a step that was left out");
}

}  // namespace
}  // namespace fullshard::testing
