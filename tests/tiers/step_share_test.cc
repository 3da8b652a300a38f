// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/step_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/errors.h"

namespace fullshard::tiers {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;

TEST(StepShare, LetsBothEndAtTheSameTime) {
  const auto share = step_share({.both = 100e9}, 87e9);
  EXPECT_THAT(share.device_ns, DoubleNear(0.2, 1e-9));
  EXPECT_THAT(share.host_ns, DoubleNear(26 / 87.0, 1e-9));
  EXPECT_THAT(share.host * share.host_ns, DoubleNear((1 - share.host) * share.device_ns, 1e-9));
  EXPECT_EQ(
      share.text(),
      "a step of 1e9 parameters takes 0.20 s over the bus and 0.30 s in host memory: the host "
      "updates 40 % of them, the device the others");
}

TEST(StepShare, LeavesASmallRestToTheOther) {
  EXPECT_EQ(step_share({.both = 100e9}, 10e9).host, 0);
  EXPECT_THAT(step_share({.both = 100e9}, 10e9).text(), HasSubstr("the device updates all"));
  EXPECT_EQ(step_share({.both = 10e9}, 500e9).host, 1);
  EXPECT_THAT(step_share({.both = 10e9}, 500e9).text(), HasSubstr("the host updates all"));
}

TEST(StepShare, RefusesAMachineWithoutSpeed) {
  EXPECT_THAT(testing::message_of([] { step_share({}, 1); }), HasSubstr("a bus of 0"));
}

}  // namespace
}  // namespace fullshard::tiers
