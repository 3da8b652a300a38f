// SPDX-License-Identifier: Apache-2.0
// Two hosts: network namespaces that see each other through a pair of virtual interfaces, each with
// a launcher of its own, and gloo between them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/files.h"
#include "tests/network_namespaces.h"

namespace fullshard::comm {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

using testing::shell;
using HostsEnded = testing::ShellEnded;

class TwoHosts : public ::testing::Test {
 protected:
  TwoHosts() {
    std::ofstream(folder_ + "/enter") << "#!/bin/sh\nexec ip netns exec \"$1\" sh -c \"$2\"\n";
    ::chmod((folder_ + "/enter").c_str(), 0700);
    std::ofstream(folder_ + "/hosts") << first_ << " slots=2\n" << second_ << " slots=2\n";
  }
  void SetUp() override {
    if (!spaces_.problem().empty()) GTEST_SKIP() << spaces_.problem();
  }

  const testing::TwoNamespaces spaces_;
  const std::string first_ = spaces_.first(), second_ = spaces_.second();
  const testing::TemporaryFolder files_;
  const std::string folder_ = files_.path();
};

const std::string kProgram = FULLSHARD_TEST_PROGRAMS "/comm_world_rank";
const std::string kLauncher = FULLSHARD_BINARIES "/fullshard launch ";

std::string digest_in(const std::string& output, int rank) {
  const std::string head = fmt::format("rank {} of 4 on gloo: ", rank);
  const size_t begin = output.find(head);
  EXPECT_NE(begin, std::string::npos) << output;
  return begin == std::string::npos ? "" : output.substr(begin + head.size(), 16);
}

TEST_F(TwoHosts, OfAHostfileTalkOverGloo) {
  const HostsEnded ended =
      shell(fmt::format("{} --hostfile {}/hosts --ssh {}/enter --master-addr "
                        "10.213.77.1 -- {} operations auto",
                        kLauncher, folder_, folder_, kProgram));
  EXPECT_EQ(ended.status, 0) << ended.output;
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(digest_in(ended.output, rank).size(), 16u);
}

TEST_F(TwoHosts, StartedByHandTalkOverGloo) {
  const std::string common = fmt::format(
      "{} --nproc_per_node 2 --nnodes 2 --master_addr 10.213.77.1 --master_port 29511", kLauncher);
  const HostsEnded ended = shell(fmt::format(
      "export FULLSHARD_JOB_SECRET=shared; ip netns exec {} {} --node_rank 1 -- {} operations auto "
      "& "
      "ip netns exec {} {} --node_rank 0 -- {} operations auto; status=$?; wait; exit $status",
      second_, common, kProgram, first_, common, kProgram));
  EXPECT_EQ(ended.status, 0) << ended.output;
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(digest_in(ended.output, rank).size(), 16u);
}

TEST_F(TwoHosts, WithDifferentTokensDoNotMeet) {
  const std::string common = fmt::format(
      "{} -n 1 --nnodes 2 --master_addr 10.213.77.1 --master_port 29512 --grace 0", kLauncher);
  const HostsEnded ended = shell(fmt::format(
      "FULLSHARD_JOB_SECRET=one ip netns exec {} {} --node_rank 0 -- {} operations auto & "
      "FULLSHARD_JOB_SECRET=two ip netns exec {} {} --node_rank 1 -- {} operations auto; kill $!; "
      "wait",
      first_, common, kProgram, second_, common, kProgram));
  EXPECT_THAT(ended.output,
              HasSubstr("error: world: the store at 10.213.77.1:29512 belongs to another job, or "
                        "this rank has another token; set FULLSHARD_JOB_SECRET to the same on all "
                        "ranks\n"));
}

TEST_F(TwoHosts, NameTheRankThatDied) {
  const HostsEnded ended =
      shell(fmt::format("{} --hostfile {}/hosts --ssh {}/enter --num_gpus 1 "
                        "--master-addr 10.213.77.1 -- {} 'rank 1 dies' auto",
                        kLauncher, folder_, folder_, kProgram));
  // Rank 0 ends because of it: whose host is heard of first is a matter of milliseconds.
  EXPECT_THAT(ended.status, AnyOf(137, 1)) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("error: rank 1: killed by signal 9 (Killed)\n"));
  EXPECT_THAT(ended.output, ContainsRegex("error: host (" + second_ + ": exited with status 137|" +
                                          first_ + ": exited with status 1)\n"));
}

}  // namespace
}  // namespace fullshard::comm
