// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/file_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "expect_error.h"

namespace fullshard::comm {
namespace {

std::vector<int> hosts_of(int num_hosts, int ranks_per_host) {
  std::vector<int> hosts;
  for (int rank = 0; rank < num_hosts * ranks_per_host; ++rank) {
    hosts.push_back(rank / ranks_per_host);
  }
  return hosts;
}

TEST(FileLimit, IsRaisedToTheHardOne) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low = {std::min<rlim_t>(before.rlim_max, 200), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(static_cast<rlim_t>(raise_file_limit()), before.rlim_max);
  rlimit after = {};
  ::getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
}

TEST(FileLimit, GrowsWithTheHostsAndNotWithTheRanksOfOthers) {
  const int64_t few = files_needed(hosts_of(2, 8), 3, false);
  EXPECT_EQ(files_needed(hosts_of(512, 8), 3, false) - few, 3 * 510);
  EXPECT_EQ(files_needed(hosts_of(2, 16), 3, false) - few, 3 * 8) << "its own host's";
  EXPECT_EQ(files_needed(hosts_of(512, 8), 0, true) - files_needed(hosts_of(512, 8), 0, false),
            2 * 4096)
      << "who serves the store holds two connections of every rank";
}

TEST(FileLimit, OfOneHostNeedsNoConnectionsBetweenRanks) {
  EXPECT_EQ(files_needed(hosts_of(1, 64), 5, false) - files_needed(hosts_of(1, 8), 5, false),
            3 * 56);
}

TEST(FileLimit, IsTheSameWhereHostsDiffer) {
  std::vector<int> hosts = hosts_of(4, 2);
  const int64_t equal = files_needed(hosts, 0, false);
  hosts.push_back(3);
  EXPECT_EQ(files_needed(hosts, 0, false), equal);
  EXPECT_EQ(files_needed(hosts, 8, false), equal + 3) << "one more neighbour";
}

TEST(FileLimit, IsNamedWhenItIsTooLow) {
  EXPECT_EQ(error_of([] { check_file_limit(9000, 1024, 4096); }),
            "world: with 4096 ranks this one opens up to 9000 files and connections, but may open "
            "1024 (ulimit -n); raise the hard limit to 9000 or more");
  check_file_limit(1024, 1024, 4096);
}

}  // namespace
}  // namespace fullshard::comm
