// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shell.h"

namespace fullshard::launch {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(CommandLine, ShowsHelp) {
  const Ended ended = shell("fullshard --help");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("launch"));
  EXPECT_THAT(shell("fullshard launch --help").output, HasSubstr("--ranks"));
}

TEST(CommandLine, SuggestsACommand) {
  const Ended ended = shell("fullshard lauch --ranks 2");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output,
            "error: fullshard: no command 'lauch', did you mean 'launch'?; see fullshard --help\n");
}

TEST(CommandLine, SuggestsAnOption) {
  const Ended ended = shell("fullshard launch --nproc_per_nodes 2 -- true");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output,
            "error: launch: no option '--nproc_per_nodes', did you mean '--nproc-per-node'?; see "
            "fullshard launch --help\n");
}

TEST(CommandLine, RefusesWrongNumbersAndMissingPrograms) {
  const Ended zero = shell("fullshard launch --ranks 0 -- true");
  EXPECT_EQ(zero.status, 2);
  EXPECT_EQ(zero.output, "error: launch: --ranks is '0', expected 1 to 4096, gpu, cpu or auto\n");
  EXPECT_EQ(shell("fullshard launch --ranks 2x -- true").status, 2);
  const Ended ended = shell("fullshard launch --ranks 2");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output, "error: launch: no program given; write it after '--'\n");
}

TEST(CommandLine, AsksForRanksWhereNoGpuIsVisible) {
  const Ended ended = shell("CUDA_VISIBLE_DEVICES= fullshard launch -- true");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(
      ended.output,
      "error: launch: no GPU is visible on this host; set the number of ranks with --ranks N\n");
}

TEST(CommandLine, KnowsTheNamesOfOtherLaunchers) {
  for (const std::string ranks :
       {"--num_gpus 2", "--num-gpus=2", "--nproc_per_node 2", "--nproc-per-node=2",
        "--num_processes 2", "--num_machines 1 --num_processes 2", "--nnodes 1 -n 2",
        "--nnode 1 -n 2"}) {
    const Ended ended = shell("fullshard launch " + ranks + " -- sh -c 'echo $WORLD_SIZE'");
    EXPECT_EQ(ended.status, 0) << ranks;
    EXPECT_THAT(ended.output, HasSubstr("[1] 2\n")) << ranks;
  }
  const Ended ended = shell(
      "FULLSHARD_JOB_SECRET=x fullshard launch --num_processes 4 --num_machines 2 --machine_rank 1 "
      "--main_process_ip n0 --main_process_port 1234 -- sh -c 'echo $RANK of $WORLD_SIZE at "
      "$MASTER_ADDR:$MASTER_PORT'");
  EXPECT_THAT(ended.output, HasSubstr("[3] 3 of 4 at n0:1234\n"));
}

TEST(CommandLine, NeedsToKnowWhichNodeThisIs) {
  EXPECT_EQ(shell("fullshard launch -n 1 --nnodes 2 --master-addr a -- true").output,
            "error: launch: 2 nodes, but this node's rank is unknown; give --node-rank, from 0, or "
            "--hostfile\n");
  EXPECT_EQ(shell("fullshard launch -n 1 --nnodes 2 --node-rank 1 -- true").output,
            "error: launch: 2 nodes, but no address where they meet; give --master-addr HOST, the "
            "host of node rank 0\n");
  EXPECT_EQ(shell("fullshard launch -n 1 --nnodes 2 --node-rank 2 --master-addr a -- true").output,
            "error: launch: node rank is 2, expected 0 to 1\n");
  EXPECT_EQ(shell("fullshard launch --num_processes 3 --nnodes 2 --node-rank 1 -- true").output,
            "error: launch: 3 processes on 2 hosts do not divide evenly; use a hostfile with "
            "slots\n");
}

TEST(Doctor, SaysWhatTheMachineGivesARun) {
  const Ended ended = shell("fullshard doctor");
  EXPECT_EQ(ended.status, 0);
  for (const char* subject : {"cores", "memory", "/dev/shm", "disk", "GPUs", "open files",
                              "locked memory", "processes"}) {
    EXPECT_THAT(ended.output, HasSubstr(subject));
  }
  EXPECT_THAT(ended.output,
              ContainsRegex("ok    libtorch       2\\.[0-9]+\\.[0-9]+.*, (CPU|CUDA) "));
  EXPECT_THAT(ended.output, HasSubstr("ok    backends       shm, gloo"));
}

TEST(Doctor, ShowsALowLimit) {
  EXPECT_THAT(shell("ulimit -n 256; fullshard doctor").output,
              HasSubstr("note  open files     256 (at most 256)\n"));
}

TEST(Doctor, BundlesARun) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "logs");
  folder.write("run.json", "{\"command\": \"fullshard train\"}\n");
  for (const std::string rank : {"0", "2", "10"}) {
    folder.write("logs/rank-" + rank + ".log", "end of " + rank + "\n");
  }
  const Ended ended = shell("fullshard doctor --report " + folder.path());
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("==== versions ====\n"));
  EXPECT_THAT(ended.output, HasSubstr("{\"command\": \"fullshard train\"}\n"));
  EXPECT_LT(ended.output.find("end of 2\n"), ended.output.find("end of 10\n"));
  const Ended written =
      shell("fullshard doctor --report " + folder.path() + " --output " + (folder / "report"));
  EXPECT_EQ(written.output, "");
  EXPECT_THAT(folder.read("report"), HasSubstr("end of 10\n"));
}

TEST(Doctor, RefusesAFolderThatIsNoRun) {
  const TemporaryFolder folder;
  const Ended ended = shell("fullshard doctor --report " + folder.path());
  EXPECT_EQ(ended.status, 4);
  EXPECT_THAT(ended.output, HasSubstr("' holds neither run.json nor rank-N.log; give the --output "
                                      "folder of a run, or the --log-dir of launch\n"));
}

}  // namespace
}  // namespace fullshard::launch
