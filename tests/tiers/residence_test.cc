// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/residence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fullshard/base/error.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kStep = tiers::kResidenceStep;

// bf16 parameters and gradients, lower halves, AdamW in fp32: 2 + 2 + 2 + 8 bytes.
tiers::GroupSize adamw_group(int64_t numel) {
  return {.name = "blocks." + std::to_string(numel),
          .numel = numel,
          .parameter_bytes = 2,
          .gradient_bytes = 2,
          .master_bytes = 2,
          .optimizer_bytes = 8};
}
tiers::GroupSize frozen_group(int64_t numel) {
  return {.name = "frozen", .numel = numel, .parameter_bytes = 2};
}

tiers::TierOptions optimizer_on(tiers::Tier tier) {
  tiers::TierOptions options;
  options.optimizer.tier = tier;
  options.optimizer.folder = "/nvme";
  return options;
}

tiers::Spread spread(int64_t device, int64_t host, int64_t disk) { return {{device, host, disk}}; }

TEST(Residence, WithoutOffloadEverythingIsOnTheDevice) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(100), frozen_group(7)};
  const tiers::Residence residence = tiers::residence_of({}, 0, groups);
  EXPECT_EQ(residence.groups[0].parameters, spread(100, 0, 0));
  EXPECT_EQ(residence.groups[0].states, spread(100, 0, 0));
  EXPECT_EQ(residence.groups[1].parameters, spread(7, 0, 0));
  EXPECT_EQ(residence.groups[1].gradients, spread(0, 0, 0));
  EXPECT_EQ(residence.groups[1].states, spread(0, 0, 0));
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::parameters, tiers::Tier::device), 214);
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::master, tiers::Tier::device), 200);
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::optimizer, tiers::Tier::device), 800);
  EXPECT_FALSE(residence.steps_on_host);
  EXPECT_THAT(residence.notes, IsEmpty());
}

TEST(Residence, OfTheOptimizerMovesMastersAndStatesAndNothingElse) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(100), frozen_group(50),
                                                adamw_group(30)};
  for (const int stage : {1, 2, 3}) {
    const tiers::Residence residence =
        tiers::residence_of(optimizer_on(tiers::Tier::host), stage, groups);
    EXPECT_EQ(residence.bytes(groups, tiers::Purpose::parameters, tiers::Tier::device), 360);
    EXPECT_EQ(residence.bytes(groups, tiers::Purpose::gradients, tiers::Tier::device), 260);
    EXPECT_EQ(residence.bytes(groups, tiers::Purpose::master, tiers::Tier::host), 260);
    EXPECT_EQ(residence.bytes(groups, tiers::Purpose::optimizer, tiers::Tier::host), 1040);
    EXPECT_EQ(residence.bytes(groups, tiers::Purpose::optimizer, tiers::Tier::device), 0);
    EXPECT_FALSE(residence.steps_on_host);
  }
  const tiers::Residence on_disk = tiers::residence_of(optimizer_on(tiers::Tier::disk), 3, groups);
  EXPECT_EQ(on_disk.bytes(groups, tiers::Purpose::optimizer, tiers::Tier::disk), 1040);
  EXPECT_EQ(on_disk.bytes(groups, tiers::Purpose::master, tiers::Tier::disk), 260);
}

// 0.25 of 8 steps leave: 6 stay, those that forward needs first.
TEST(Residence, RatioIsTheShareThatLeavesAndTheFirstUnitsStay) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(3 * kStep), adamw_group(4 * kStep),
                                                adamw_group(kStep)};
  tiers::TierOptions options = optimizer_on(tiers::Tier::host);
  options.ratio = 0.25;
  tiers::Residence residence = tiers::residence_of(options, 3, groups);
  EXPECT_EQ(residence.groups[0].states, spread(3 * kStep, 0, 0));
  EXPECT_EQ(residence.groups[1].states, spread(3 * kStep, kStep, 0));
  EXPECT_EQ(residence.groups[2].states, spread(0, kStep, 0));
  EXPECT_EQ(residence.groups[1].parameters, spread(4 * kStep, 0, 0));
  options.ratio = 0.0;
  residence = tiers::residence_of(options, 3, groups);
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::optimizer, tiers::Tier::host), 0);
  options.ratio = 1.0;
  residence = tiers::residence_of(options, 3, groups);
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::optimizer, tiers::Tier::device), 0);
}

TEST(Residence, IsCutAtWholeStepsAndNothingStaysBehindACut) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(2 * kStep + 100), adamw_group(50)};
  tiers::TierOptions options = optimizer_on(tiers::Tier::disk);
  options.ratio = 0.5;  // kStep + 75 of them would stay
  const tiers::Residence residence = tiers::residence_of(options, 3, groups);
  EXPECT_EQ(residence.groups[0].states, spread(kStep, 0, kStep + 100));
  EXPECT_EQ(residence.groups[1].states, spread(0, 0, 50));
}

TEST(Residence, FillsABudgetWithTheFirstUnits) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(2 * kStep), adamw_group(2 * kStep)};
  const auto with = [&](std::optional<double> ratio, int64_t bytes) {
    tiers::TierOptions options = optimizer_on(tiers::Tier::host);
    options.ratio = ratio;
    const tiers::Residence residence =
        tiers::residence_of(options, 3, groups, {.device_bytes = bytes});
    return residence.groups[0].states.on(tiers::Tier::device) +
           residence.groups[1].states.on(tiers::Tier::device);
  };
  EXPECT_EQ(with({}, 0), 0);
  EXPECT_EQ(with({}, -5), 0);
  EXPECT_EQ(with({}, 10 * 3 * kStep), 3 * kStep);      // 10 bytes each
  EXPECT_EQ(with({}, 10 * 3 * kStep - 1), 2 * kStep);  // a byte too little for the third
  EXPECT_EQ(with({}, int64_t{1} << 60), 4 * kStep);
  EXPECT_EQ(with(0.75, int64_t{1} << 60), kStep);    // a ratio that is said holds
  EXPECT_EQ(with(0.25, 10 * 2 * kStep), 2 * kStep);  // as far as there is room
}

TEST(Residence, OfParametersOnDiskKeepsTheFirstInMemory) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(kStep), frozen_group(2 * kStep),
                                                adamw_group(kStep)};
  tiers::TierOptions options;
  options.parameters = {.tier = tiers::Tier::disk, .folder = "/nvme", .buffer_count = 5};
  options.max_in_cpu = 2 * kStep;
  tiers::Residence residence = tiers::residence_of(options, 3, groups);
  EXPECT_EQ(residence.groups[0].parameters, spread(0, kStep, 0));
  EXPECT_EQ(residence.groups[1].parameters, spread(0, kStep, kStep));
  EXPECT_EQ(residence.groups[2].parameters, spread(0, 0, kStep));
  EXPECT_EQ(residence.groups[0].states, spread(kStep, 0, 0));
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::parameters, tiers::Tier::disk), 4 * kStep);
  options.parameters.tier = tiers::Tier::host;
  residence = tiers::residence_of(options, 3, groups);
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::parameters, tiers::Tier::host), 8 * kStep);
}

TEST(Residence, OfFsdpsOffloadHoldsAllOnTheHostAndStepsThere) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(100), frozen_group(10)};
  tiers::TierOptions options;
  options.everything = true;
  const tiers::Residence residence = tiers::residence_of(options, 3, groups);
  EXPECT_TRUE(residence.steps_on_host);
  EXPECT_EQ(residence.groups[0],
            (tiers::GroupResidence{spread(0, 100, 0), spread(0, 100, 0), spread(0, 100, 0)}));
  EXPECT_EQ(residence.groups[1].parameters, spread(0, 10, 0));
  EXPECT_EQ(residence.groups[1].gradients, spread(0, 0, 0));
}

TEST(Residence, OnACpuHostMemoryIsTheDevicesAndTheDiskIsReal) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(2 * kStep)};
  tiers::TierOptions options = optimizer_on(tiers::Tier::host);
  tiers::Residence residence = tiers::residence_of(options, 3, groups, {.is_cpu = true});
  EXPECT_EQ(residence.groups[0].states, spread(2 * kStep, 0, 0));
  EXPECT_THAT(
      residence.notes,
      ElementsAre("on a CPU device host memory holds everything already: nothing is moved"));
  options.parameters = {.tier = tiers::Tier::disk, .folder = "/nvme", .buffer_count = 5};
  options.max_in_cpu = kStep;
  options.optimizer.tier = tiers::Tier::disk;
  residence = tiers::residence_of(options, 3, groups, {.is_cpu = true});
  EXPECT_EQ(residence.groups[0].states, spread(0, 0, 2 * kStep));
  EXPECT_EQ(residence.groups[0].parameters, spread(kStep, 0, kStep));
  EXPECT_THAT(residence.notes, IsEmpty());
}

TEST(Residence, TellsWhichKeyDoesNotGoWithTheStageAndWhatToDo) {
  const auto refusal = [](const tiers::TierOptions& options, int stage) {
    return message_of([&] { tiers::residence_of(options, stage, {}); });
  };
  tiers::TierOptions options = optimizer_on(tiers::Tier::host);
  EXPECT_EQ(refusal(options, 0),
            "offload_optimizer.device: is cpu, but optimizer states can only be offloaded in stage "
            "1, 2 or 3, and the stage is 0; set the stage to 1, 2 or 3, or the device to none");
  EXPECT_EQ(refusal(options, 1), "no error");
  EXPECT_EQ(refusal(optimizer_on(tiers::Tier::disk), 2),
            "offload_optimizer.device: is nvme, which needs stage 3, but the stage is 2; set the "
            "stage to 3, or the device to cpu");
  options.ratio = 0.5;
  EXPECT_EQ(
      refusal(options, 2),
      "offload_optimizer.ratio: is 0.5, expected 1 unless the stage is 3; set the stage to 3, "
      "or leave it away");
  options.ratio = 1.5;
  EXPECT_EQ(refusal(options, 3), "offload_optimizer.ratio: is 1.5, expected a number from 0 to 1");
  options = {};
  options.parameters.tier = tiers::Tier::host;
  EXPECT_EQ(
      refusal(options, 2),
      "offload_param.device: is cpu, but parameters can only be offloaded in stage 3, and the "
      "stage is 2; set the stage to 3, or the device to none");
}

TEST(TierOptions, RefuseHostileSizes) {
  const auto problems = [](const tiers::TierOptions& options) {
    std::vector<std::string> keys;
    for (const auto& problem : tiers::offload_problems(options, 3)) keys.push_back(problem.key);
    return keys;
  };
  tiers::TierOptions options;
  options.parameters = {.tier = tiers::Tier::disk, .folder = "", .buffer_count = 0};
  options.buffer_size = 0;
  options.max_in_cpu = -1;
  options.disk.block_size = 1;
  EXPECT_THAT(problems(options), ElementsAre("offload_param.device", "offload_param.buffer_count",
                                             "offload_param.buffer_size",
                                             "offload_param.max_in_cpu", "aio.block_size"));
  options.parameters = {.tier = tiers::Tier::disk, .folder = "/nvme", .buffer_count = 1 << 20};
  options.buffer_size = int64_t{1} << 60;
  options.max_in_cpu = 0;
  options.disk = {.queue_depth = int64_t{1} << 40};
  EXPECT_THAT(problems(options), ElementsAre("offload_param.buffer_size", "aio.queue_depth"));
  options.parameters.tier = tiers::Tier::host;  // the disk is not used: nobody asks about it
  EXPECT_THAT(problems(options), IsEmpty());
  options.everything = true;
  EXPECT_THAT(problems(options), ElementsAre("offload_params"));
}

}  // namespace
}  // namespace fullshard::testing
