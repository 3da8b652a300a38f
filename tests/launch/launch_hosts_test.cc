// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/launch_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "fullshard/launch/remote_command.h"
#include "shell.h"

namespace fullshard::launch {
namespace {

using ::testing::HasSubstr;

// Replaces ssh: every host is this one, but its shell starts elsewhere with few variables, as a
// real one does. A host whose name begins with "down" cannot be reached.
class Hosts : public ::testing::Test {
 protected:
  Hosts() {
    folder_.write("ssh.sh",
                  "#!/bin/sh\n"
                  "case $1 in down*) echo \"ssh: $1: no route\" >&2; exit 255;; esac\n"
                  "cd / && exec env -i PATH=\"$PATH\" HOST=\"$1\" sh -c \"$2\"\n");
    std::filesystem::permissions(folder_ / "ssh.sh", std::filesystem::perms::owner_all);
  }

  Ended launch(const std::string& hosts, const std::string& flags, const std::string& script,
               int notice = 0) {
    const std::string file = folder_.write("hosts", hosts);
    const std::string line = "echo $$ > launcher; exec fullshard launch --notice " +
                             std::to_string(notice) + " --hostfile " + file + " --ssh " +
                             (folder_ / "ssh.sh") + " " + flags + " -- sh -c " +
                             shell_quoted(script);
    return shell("cd " + folder_.path() + "; unset CUDA_VISIBLE_DEVICES; PATH=$PATH sh -c " +
                 shell_quoted(line));
  }

  TemporaryFolder folder_;
};

TEST(RemoteCommand, QuotesWhateverAWordHolds) {
  const std::string word = "it's \"$HOME\" `x` \\ * \n end";
  EXPECT_EQ(shell("printf %s " + shell_quoted(word)).output, word);
  EXPECT_EQ(shell("printf %s " + shell_quoted("")).output, "");
}

TEST(RemoteCommand, NeverAsksForAPassword) {
  EXPECT_EQ(remote_command("/usr/bin/ssh -p 2222", "n1", "true"),
            (std::vector<std::string>{"/usr/bin/ssh", "-p", "2222", "-o", "BatchMode=yes", "-o",
                                      "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-T",
                                      "n1", "true"}));
  EXPECT_EQ(remote_command("rsh", "n1", "true"), (std::vector<std::string>{"rsh", "n1", "true"}));
}

TEST_F(Hosts, HaveTheRanksOfTheirSlots) {
  const Ended ended =
      launch("n1 slots=1\nn2 slots=2\nn3 slots=1\n", "",
             "echo \"$HOST: $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
             "$GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR ${#FULLSHARD_JOB_SECRET} $PWD\"");
  EXPECT_EQ(ended.status, 0) << ended.output;
  const std::string tail = " n1 32 " + folder_.path() + "\n";
  EXPECT_THAT(ended.output, HasSubstr("n1: 0/4 0/1 0/3" + tail));
  EXPECT_THAT(ended.output, HasSubstr("[1] n2: 1/4 0/2 1/3" + tail));
  EXPECT_THAT(ended.output, HasSubstr("[2] n2: 2/4 1/2 1/3" + tail));
  EXPECT_THAT(ended.output, HasSubstr("[3] n3: 3/4 0/1 2/3" + tail));
}

TEST_F(Hosts, AreChosenBySlot) {
  const std::string hosts = "n1 slots=4\nn2 slots=4\nn3 slots=4\n";
  const std::string script = "echo $HOST $RANK/$WORLD_SIZE gpu ${CUDA_VISIBLE_DEVICES-all}";
  const Ended include = launch(hosts, "--include n3:1,3@n1:0", script);
  EXPECT_THAT(include.output, HasSubstr("n1 0/3 gpu all\n"));
  EXPECT_THAT(include.output, HasSubstr("[1] n3 1/3 gpu 1,3\n"));
  EXPECT_THAT(include.output, HasSubstr("[2] n3 2/3 gpu 1,3\n"));
  const Ended first = launch(hosts, "--num_nodes 2 --num_gpus 1", script);
  EXPECT_THAT(first.output, HasSubstr("n1 0/2 gpu all\n"));
  EXPECT_THAT(first.output, HasSubstr("[1] n2 1/2 gpu all\n"));
  EXPECT_EQ(launch(hosts, "--num_gpus 5", script).output,
            "error: launch: 5 ranks per host asked for, but host n1 has 4 slots\n");
}

TEST_F(Hosts, AreAllTriedBeforeAnythingStarts) {
  const Ended ended = launch("n1 slots=1\ndown1 slots=1\nn2 slots=1\ndown2 slots=1\n", "",
                             "touch " + (folder_ / "started"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output,
            "error: launch: host down1: ssh: down1: no route\n"
            "error: launch: host down2: ssh: down2: no route\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "started"));
}

TEST_F(Hosts, PassArgumentsAsTheyAre) {
  const std::string file = folder_.write("hosts", "n1 slots=1\nn2 slots=1\n");
  const Ended ended = shell("fullshard launch -H " + file + " --ssh " + (folder_ / "ssh.sh") +
                            " -- printf '<%s>\\n' \"it's\" '$HOME *' '' --ranks");
  EXPECT_THAT(ended.output, HasSubstr("[1] <it's>\n[1] <$HOME *>\n[1] <>\n[1] <--ranks>\n"));
}

TEST_F(Hosts, GetVariablesThatMatter) {
  const std::string file = folder_.write("hosts", "n1 slots=1\nn2 slots=1\n");
  const Ended ended =
      shell("export NCCL_DEBUG=INFO MINE=1 OTHER=2; fullshard launch -H " + file + " --ssh " +
            (folder_ / "ssh.sh") + " --export MINE -- sh -c 'echo $NCCL_DEBUG $MINE ${OTHER-no}'");
  EXPECT_THAT(ended.output, HasSubstr("[1] INFO 1 no\n"));
}

TEST_F(Hosts, DoNotShowTheTokenToOtherUsers) {
  // The word to look for comes from a file: as an argument of grep it would be found.
  const Ended ended = launch("n1 slots=1\nn2 slots=1\n", "",
                             "printf %s \"$FULLSHARD_JOB_SECRET\" > word.$RANK; cat "
                             "/proc/*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c -f "
                             "word.$RANK; true");
  EXPECT_THAT(ended.output, HasSubstr("[1] 0\n"));
}

TEST_F(Hosts, EndTogetherWhenARankFails) {
  const Ended ended = launch("n1 slots=2\nn2 slots=2\n", "",
                             "[ $RANK = 3 ] && echo oh no && exit 7; exec sleep 100");
  EXPECT_EQ(ended.status, 7);
  EXPECT_THAT(ended.output, HasSubstr("error: rank 3: exited with status 7\nlast lines of rank "
                                      "3:\n  oh no\n"));
  EXPECT_THAT(ended.output, HasSubstr("error: host n2: exited with status 7\n"));
}

// Ranks that look for each other cannot notice that one is missing, and --notice would take days.
TEST_F(Hosts, EndAtOnceWhenARankIsKilledBeforeAllHaveMet) {
  const Ended ended =
      launch("n1 slots=2\nn2 slots=2\n", "",
             kBeginsToMeet +
                 "touch ready.$RANK; if [ $RANK = 3 ]; then until [ -e ready.0 ] && "
                 "[ -e ready.1 ] && [ -e ready.2 ]; do sleep 0.02; done; "
                 "kill -9 $$; fi; sleep 300; touch overslept",
             /*notice=*/1000000);
  EXPECT_EQ(ended.status, 137);
  EXPECT_THAT(ended.output, HasSubstr("error: rank 3: killed by signal 9 (Killed)\n"));
  EXPECT_THAT(ended.output, HasSubstr("error: host n2: exited with status 137\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "overslept"));
}

TEST_F(Hosts, AreStartedAgain) {
  const Ended ended = launch("n1 slots=1\nn2 slots=1\n", "--max-restarts 1",
                             "echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS at "
                             "$FULLSHARD_JOB_SECRET; [ $TORCHELASTIC_RESTART_COUNT = 1 ]");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("launch: restart 1 of 1\n"));
  EXPECT_THAT(ended.output, HasSubstr("[1] 1 of 1 at "));
}

TEST_F(Hosts, PassSignalsOnToTheirRanks) {
  const Ended ended = launch("n1 slots=1\nn2 slots=2\n", "--grace 60",
                             "trap 'echo rank $RANK saves; exit 0' INT; touch ready.$RANK; "
                             "if [ $RANK = 2 ]; then until [ -e ready.0 ] && [ -e ready.1 ]; do "
                             "sleep 0.02; done; kill -INT $(cat launcher); fi; "
                             "while :; do sleep 0.05; done");
  EXPECT_EQ(ended.status, 130);
  for (const std::string rank : {"0", "1", "2"}) {
    EXPECT_THAT(ended.output, HasSubstr("rank " + rank + " saves\n"));
  }
}

// The pipe ends only when the last rank on the last host is gone.
TEST_F(Hosts, EndTheirRanksWhenTheLauncherIsGone) {
  const auto start = std::chrono::steady_clock::now();
  const Ended ended =
      launch("n1 slots=1\nn2 slots=2\n", "--grace 0.1",
             "trap '' TERM HUP; [ $RANK = 2 ] && kill -9 $(cat launcher); sleep 100");
  EXPECT_NE(ended.status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(OneHost, NeedsNoConnection) {
  const TemporaryFolder folder;
  const std::string file = folder.write("hosts", "localhost slots=2\n");
  EXPECT_THAT(shell("fullshard launch --ssh false -H " + file +
                    " -- sh -c 'echo $RANK of "
                    "$WORLD_SIZE at $MASTER_ADDR'")
                  .output,
              HasSubstr("[1] 1 of 2 at 127.0.0.1\n"));
  EXPECT_THAT(shell("fullshard launch -n 4 --include localhost:1,3 -- sh -c 'echo $RANK of "
                    "$WORLD_SIZE on $CUDA_VISIBLE_DEVICES'")
                  .output,
              HasSubstr("[1] 1 of 2 on 1,3\n"));
}

}  // namespace
}  // namespace fullshard::launch
