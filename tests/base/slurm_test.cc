// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/slurm.h"

#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "tests/errors.h"

namespace fullshard::base {
namespace {

using fullshard::testing::message_of;
using Names = std::vector<std::string>;

TEST(HostList, ExpandsRangesAndKeepsTheirWidth) {
  EXPECT_EQ(expand_host_list("n[01-03,7],m2"), (Names{"n01", "n02", "n03", "n7", "m2"}));
  EXPECT_EQ(expand_host_list("login"), (Names{"login"}));
  EXPECT_EQ(expand_host_list("n[098-101]"), (Names{"n098", "n099", "n100", "n101"}));
  EXPECT_EQ(expand_host_list("r[1-2]n[1-2]"), (Names{"r1n1", "r1n2", "r2n1", "r2n2"}));
  EXPECT_EQ(expand_host_list("n[1-2]-ib,x"), (Names{"n1-ib", "n2-ib", "x"}));
  EXPECT_EQ(message_of([] { expand_host_list("n[1-2"); }),
            "environment: 'n[1-2' is no list of hosts: ']' is missing");
}

TEST(HostList, ExpandsCounts) {
  EXPECT_EQ(expand_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("8"), (std::vector<int>{8}));
}

TEST(HostList, RefusesRangesThatRunBackwards) {
  EXPECT_EQ(message_of([] { expand_host_list("n[7-3]"); }),
            "environment: a host list's range is '7-3', expected LOW-HIGH");
}

TEST(PortOfJob, IsTheSameForAllRanksOfAJob) {
  EXPECT_EQ(port_of_job("4711"), port_of_job("4711"));
  EXPECT_NE(port_of_job("4711"), port_of_job("4712"));
  EXPECT_GE(port_of_job("4711"), 20000);
  EXPECT_LT(port_of_job("4711"), 30000);
}

}  // namespace
}  // namespace fullshard::base
