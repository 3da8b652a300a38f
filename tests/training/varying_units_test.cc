// SPDX-License-Identifier: Apache-2.0
// States and gradients that rest elsewhere, when other units have gradients in every step: lanes of
// the CPU do their work as late as marks allow, so that what reads too early finds old values.
#include "tests/training/varying_units.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tests/files.h"
#include "tests/offload_options.h"

namespace fullshard::testing {
namespace {

using NamedValues = std::map<std::string, at::Tensor>;

NamedValues trained(int ranks, const ShardOptions& options, const VaryingUnits& training = {}) {
  NamedValues values;
  run_ranks({.ranks = ranks}, [&](const World& world) {
    auto own = train_varying_units(world, options, training);
    if (world.rank() == 0) values = std::move(own);
  });
  return values;
}

void expect_equal(const NamedValues& found, const NamedValues& expected, const std::string& what) {
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(at::equal(found.at(name), value)) << what << ": " << name;
  }
}

TEST(VaryingUnitsOffloaded, HaveTheBitsOfResidentOnes) {
  const TemporaryFolder folder;
  for (const int ranks : {1, 2}) {
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      ShardOptions options{.param_dtype = compute};
      const auto resident = trained(ranks, options);
      for (const auto& [name, offload] : residences(folder.path())) {
        for (const int64_t windows : {2, 4}) {
          options.offload = offload;
          options.offload.optimizer.buffer_count = windows;
          expect_equal(trained(ranks, options), resident,
                       fmt::format("{}, {} windows, {} ranks", name, windows, ranks));
        }
      }
    }
  }
}

TEST(VaryingUnitsOffloaded, StepWithTheirOwnGradientsAfterAStepThatWasLeftOut) {
  for (const int micro_batches : {1, 2}) {
    const VaryingUnits training{.micro_batches = micro_batches, .skips_a_step = true};
    const auto resident = trained(1, {}, training);
    ShardOptions options;
    options.offload = all_in_host_memory(kDiskWindow, 4);
    expect_equal(trained(1, options, training), resident, "everything on the host");
  }
}

}  // namespace
}  // namespace fullshard::testing
