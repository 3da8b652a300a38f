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

constexpr int64_t kStep = 4096;

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

using ::testing::Each;
using tiers::Tier;

std::vector<Tier> states_of(const tiers::Residence& residence) {
  std::vector<Tier> tiers;
  for (const auto& group : residence.groups) tiers.push_back(group.states);
  return tiers;
}
std::vector<Tier> parameters_of(const tiers::Residence& residence) {
  std::vector<Tier> tiers;
  for (const auto& group : residence.groups) tiers.push_back(group.parameters);
  return tiers;
}

TEST(Residence, WithoutOffloadEverythingIsOnTheDevice) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(100), frozen_group(7)};
  const tiers::Residence residence = tiers::residence_of({}, 0, groups);
  EXPECT_THAT(residence.groups, Each(tiers::GroupResidence{}));
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::parameters, Tier::device), 214);
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::master, Tier::device), 200);
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::optimizer, Tier::device), 800);
  EXPECT_FALSE(residence.uses(Tier::host) || residence.uses(Tier::disk));
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
  }
  const tiers::Residence on_disk = tiers::residence_of(optimizer_on(tiers::Tier::disk), 3, groups);
  EXPECT_EQ(on_disk.bytes(groups, tiers::Purpose::optimizer, tiers::Tier::disk), 1040);
  EXPECT_EQ(on_disk.bytes(groups, tiers::Purpose::master, tiers::Tier::disk), 260);
}

// 0.25 of 8 leave, 6 may stay: the first group, but not the second with it.
TEST(Residence, RatioIsTheShareThatLeavesAndTheFirstUnitsStay) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(3), frozen_group(9), adamw_group(4),
                                                adamw_group(1)};
  const auto with = [&](double ratio) {
    tiers::TierOptions options = optimizer_on(Tier::host);
    options.ratio = ratio;
    return states_of(tiers::residence_of(options, 3, groups));
  };
  const auto device = Tier::device, host = Tier::host;
  EXPECT_THAT(with(0.25), ElementsAre(device, device, host, host));  // none behind one that left
  EXPECT_THAT(with(0.125), ElementsAre(device, device, device, host));
  EXPECT_THAT(with(0.0), Each(device));
  EXPECT_THAT(with(1.0), ElementsAre(host, device, host, host));  // a frozen one has none
}

TEST(Residence, FillsABudgetWithTheFirstUnits) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(20), adamw_group(30)};
  const auto with = [&](std::optional<double> ratio, int64_t bytes) {
    tiers::TierOptions options = optimizer_on(Tier::host);
    options.ratio = ratio;
    const auto residence = tiers::residence_of(options, 3, groups, {.device_bytes = bytes});
    return residence.bytes(groups, tiers::Purpose::optimizer, Tier::device) / 8;
  };
  EXPECT_EQ(with({}, 0), 0);
  EXPECT_EQ(with({}, -5), 0);
  EXPECT_EQ(with({}, 10 * 20), 20);  // 10 bytes each
  EXPECT_EQ(with({}, 10 * 20 - 1), 0);
  EXPECT_EQ(with({}, 10 * 50 - 1), 20);
  EXPECT_EQ(with({}, int64_t{1} << 60), 50);
  EXPECT_EQ(with(0.6, int64_t{1} << 60), 20);  // a ratio that is said holds
  EXPECT_EQ(with(0.0, 10 * 20), 20);           // as far as there is room
}

TEST(Residence, OfParametersOnDiskKeepsTheFirstInMemory) {
  std::vector<tiers::GroupSize> groups = {adamw_group(10), frozen_group(20), adamw_group(10)};
  tiers::TierOptions options;
  options.parameters = {.tier = Tier::disk, .folder = "/nvme", .buffer_count = 5};
  options.max_in_cpu = 30;
  tiers::Residence residence = tiers::residence_of(options, 3, groups);
  EXPECT_THAT(parameters_of(residence), ElementsAre(Tier::host, Tier::host, Tier::disk));
  EXPECT_THAT(states_of(residence), Each(Tier::device));
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::parameters, Tier::disk), 20);
  options.max_in_cpu = 29;
  EXPECT_THAT(parameters_of(tiers::residence_of(options, 3, groups)),
              ElementsAre(Tier::host, Tier::disk, Tier::disk));
  options.parameters.tier = Tier::host;
  groups[0].keeps_parameters = true;
  residence = tiers::residence_of(options, 3, groups);
  EXPECT_THAT(parameters_of(residence), ElementsAre(Tier::device, Tier::host, Tier::host));
  EXPECT_EQ(residence.bytes(groups, tiers::Purpose::parameters, Tier::host), 60);
}

TEST(Residence, OfFsdpsOffloadHoldsAllOnTheHost) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(100), frozen_group(10)};
  tiers::TierOptions options;
  options.everything = true;
  const tiers::Residence residence = tiers::residence_of(options, 3, groups);
  EXPECT_EQ(residence.groups[0], (tiers::GroupResidence{Tier::host, Tier::host, Tier::host}));
  EXPECT_EQ(residence.groups[1], (tiers::GroupResidence{Tier::host, Tier::device, Tier::device}));
}

std::vector<Tier> steps_of(const tiers::Residence& residence) {
  std::vector<Tier> tiers;
  for (const auto& group : residence.groups) tiers.push_back(group.stepped_on);
  return tiers;
}

TEST(Residence, LetsTheHostUpdateWhatForwardNeedsLast) {
  const std::vector<tiers::GroupSize> groups = {
      adamw_group(100), adamw_group(100), frozen_group(500), adamw_group(100), adamw_group(100)};
  auto options = optimizer_on(Tier::host);
  EXPECT_THAT(steps_of(tiers::residence_of(options, 3, groups)), Each(Tier::device));
  options.host_share = 0.5;
  const auto half = tiers::residence_of(options, 3, groups);
  EXPECT_THAT(steps_of(half),
              ElementsAre(Tier::device, Tier::device, Tier::device, Tier::host, Tier::host));
  EXPECT_EQ(half.bytes(groups, tiers::Purpose::gradients, Tier::host), 0);
  options.host_share = 0.3;  // 120 elements: one group is nearer than two
  EXPECT_THAT(steps_of(tiers::residence_of(options, 3, groups)),
              ElementsAre(Tier::device, Tier::device, Tier::device, Tier::device, Tier::host));
  options.host_share.reset();
  options.stepping = tiers::Stepping::host;
  EXPECT_THAT(steps_of(tiers::residence_of(options, 3, groups)),
              ElementsAre(Tier::host, Tier::host, Tier::device, Tier::host, Tier::host));
  EXPECT_THAT(steps_of(tiers::residence_of(options, 3, groups, {.is_cpu = true})),
              Each(Tier::device));
  options.ratio = 0.5;  // what stays on the device is updated there
  EXPECT_THAT(steps_of(tiers::residence_of(options, 3, groups)),
              ElementsAre(Tier::device, Tier::device, Tier::device, Tier::host, Tier::host));
  EXPECT_THAT(steps_of(tiers::residence_of(optimizer_on(Tier::disk), 3, groups)),
              Each(Tier::device));
}

TEST(Residence, OnACpuHostMemoryIsTheDevicesAndTheDiskIsReal) {
  const std::vector<tiers::GroupSize> groups = {adamw_group(10), adamw_group(20)};
  tiers::TierOptions options = optimizer_on(Tier::host);
  tiers::Residence residence = tiers::residence_of(options, 3, groups, {.is_cpu = true});
  EXPECT_THAT(states_of(residence), Each(Tier::device));
  EXPECT_THAT(residence.notes, ElementsAre("offload: on a CPU device host memory holds everything "
                                           "already: nothing is moved"));
  options.parameters = {.tier = Tier::disk, .folder = "/nvme", .buffer_count = 5};
  options.max_in_cpu = 10;
  options.optimizer.tier = Tier::disk;
  residence = tiers::residence_of(options, 3, groups, {.is_cpu = true});
  EXPECT_THAT(states_of(residence), Each(Tier::disk));
  EXPECT_THAT(parameters_of(residence), ElementsAre(Tier::device, Tier::disk));
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
