// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/offload.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/engine/plan/group_spec.h"
#include "tests/errors.h"

namespace fullshard::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GroupSpec group_of(int64_t numel, bool trainable = true) {
  GroupSpec spec;
  spec.trainable = trainable;
  spec.parameters.push_back({{"p"}, at::empty({numel})});
  return spec;
}

std::vector<bool> offloaded(double share) {
  // A frozen group counts for nothing.
  std::vector<std::vector<GroupSpec>> units{
      {group_of(10), group_of(1000, false)}, {group_of(40)}, {group_of(10), group_of(40)}};
  choose_offloaded({.optimizer = tiers::Tier::host, .resident_share = share}, units);
  std::vector<bool> found;
  for (const auto& unit : units) {
    for (const auto& spec : unit) found.push_back(spec.states_on_host);
  }
  return found;
}

TEST(ResidentShare, GoesToTheUnitsThatComeFirst) {
  EXPECT_THAT(offloaded(0), ElementsAre(true, false, true, true, true));
  EXPECT_THAT(offloaded(0.1), ElementsAre(false, false, true, true, true));
  EXPECT_THAT(offloaded(0.49), ElementsAre(false, false, true, true, true));
  EXPECT_THAT(offloaded(0.5), ElementsAre(false, false, false, true, true));
  EXPECT_THAT(offloaded(0.6), ElementsAre(false, false, false, false, true));
  EXPECT_THAT(offloaded(1), ElementsAre(false, false, false, false, false));
}

TEST(StateOffload, OutOfRangeAreNamed) {
  const auto said = [](const StateOffload& options) {
    return testing::message_of([&] { check_offload(options); });
  };
  EXPECT_THAT(said({.resident_share = 1.5}), HasSubstr("offload.resident_share is 1.5"));
  EXPECT_THAT(said({.resident_share = -0.1}), HasSubstr("offload.resident_share is -0.1"));
  EXPECT_THAT(said({.window_bytes = 0}), HasSubstr("offload.window_bytes is 0"));
  EXPECT_THAT(said({.num_windows = 0}), HasSubstr("offload.num_windows is 0"));
  EXPECT_THAT(said({.optimizer = tiers::Tier::disk}), HasSubstr("offload.optimizer is 'disk'"));
  EXPECT_EQ(said({}), "no error");
}

}  // namespace
}  // namespace fullshard::engine
