// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/slurm_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "fullshard/base/slurm.h"
#include "shell.h"
#include "tests/launcher_settings.h"

namespace fullshard::launch {
namespace {

using testing::Settings;
using testing::told_by;

std::optional<SlurmNode> find(const Settings& settings) {
  return find_slurm_node(told_by(settings).slurm);
}

const Settings kSecondOfThree = {{"SLURM_PROCID", "1"},
                                 {"SLURM_NTASKS", "3"},
                                 {"SLURM_NNODES", "3"},
                                 {"SLURM_NODEID", "1"},
                                 {"SLURM_JOB_NODELIST", "n[07-9]"},
                                 {"SLURM_JOB_ID", "4711"}};

TEST(SlurmNode, IsFoundWhereEachNodeHasOneTask) {
  const auto node = find(kSecondOfThree);
  ASSERT_TRUE(node);
  EXPECT_EQ(node->nodes, 3);
  EXPECT_EQ(node->node_rank, 1);
  EXPECT_EQ(node->master_address, "n07");
  EXPECT_EQ(node->master_port, base::port_of_job("4711"));
}

TEST(SlurmNode, IsNotFoundInABatchScriptOrAnAllocation) {
  EXPECT_FALSE(find({}));
  EXPECT_FALSE(find({{"SLURM_NTASKS", "3"}, {"SLURM_NNODES", "3"}}));
  EXPECT_FALSE(find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_NNODES", "1"}}));
}

TEST(SlurmNode, RefusesSeveralTasksPerNode) {
  Settings settings = kSecondOfThree;
  settings["SLURM_NTASKS"] = "12";
  try {
    find(settings);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "launch: srun started 12 tasks on 3 nodes, and each would start the ranks of its "
                 "node; use srun --ntasks-per-node=1, or start the program without 'fullshard "
                 "launch'");
  }
}

TEST(SlurmNode, StartsItsRanks) {
  const Ended ended = shell(
      "export SLURM_PROCID=1 SLURM_NTASKS=3 SLURM_NNODES=3 SLURM_NODEID=1 "
      "SLURM_JOB_NODELIST='n[07-9]' SLURM_JOB_ID=4711 FULLSHARD_JOB_SECRET=x; fullshard launch "
      "--ranks 2 -- sh -c 'echo $RANK of $WORLD_SIZE at $MASTER_ADDR'");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, ::testing::HasSubstr("[2] 2 of 6 at n07\n"));
  EXPECT_THAT(ended.output, ::testing::HasSubstr("[3] 3 of 6 at n07\n"));
}

}  // namespace
}  // namespace fullshard::launch
