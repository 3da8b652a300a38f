// SPDX-License-Identifier: Apache-2.0
// What rests outside the device, on a device whose streams are as late as they may be.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/gpu.h"
#include "tests/offload_options.h"
#include "tests/training/varying_units.h"

namespace fullshard::testing {
namespace {

using NamedValues = std::map<std::string, at::Tensor>;

void expect_same_values(const NamedValues& found, const NamedValues& expected,
                        const std::string& what) {
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(at::equal(found.at(name), value)) << what << ": " << name;
  }
}

std::map<std::string, tiers::TierOptions> residences_of_a_gpu(const std::string& folder) {
  auto all = residences(folder);
  for (auto& [name, options] : all) options.streams_on_cpu = false;
  return all;
}

// Every place of states, gradients and parameters, whoever updates them, with units that come and
// go.
TEST(OffloadOnAGpu, HasTheBitsOfWhatRestsThere) {
  const TemporaryFolder folder;
  for (const auto compute : {at::kFloat, at::kBFloat16}) {
    for (const int micro_batches : {1, 2}) {
      const VaryingUnits training{.steps = 6, .micro_batches = micro_batches};
      ShardOptions options{.param_dtype = compute};
      const auto resident = train_varying_units(World::single(kGpu), options, training);
      for (const auto& [name, offload] : residences_of_a_gpu(folder.path())) {
        options.offload = offload;
        expect_same_values(train_varying_units(World::single(kGpu), options, training), resident,
                           fmt::format("{}, {} micro-batches", name, micro_batches));
      }
    }
  }
}

TEST(OffloadOnAGpu, ComputesAsTheCpuDoes) {
  const auto on_cpu = train_varying_units(World::single(), {}, {.steps = 4});
  const auto on_gpu = train_varying_units(World::single(kGpu), {}, {.steps = 4});
  for (const auto& [name, value] : on_cpu) {
    EXPECT_LT((on_gpu.at(name) - value).abs().max().item<double>(), 1e-6) << name;
  }
}

// Gradients that wait in host memory come with the states: those of a step that was left out, or
// had another backward behind its clip, must not be stepped with.
TEST(OffloadOnAGpu, StepsWithTheGradientsThatThereAre) {
  const TemporaryFolder folder;
  for (const int micro_batches : {1, 2}) {
    const VaryingUnits training{.steps = 6, .micro_batches = micro_batches, .skips_a_step = true};
    const auto resident = train_varying_units(World::single(kGpu), {}, training);
    for (const auto& [name, offload] : residences_of_a_gpu(folder.path())) {
      expect_same_values(train_varying_units(World::single(kGpu), {.offload = offload}, training),
                         resident, name);
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
