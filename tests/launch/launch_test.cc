// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/launch.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "shell.h"

namespace fullshard::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

LaunchResult launch_shell(int ranks, const std::string& script,
                          std::chrono::milliseconds grace = 5s) {
  return launch({.ranks = ranks, .command = {"sh", "-c", script}, .notice = 0ms, .grace = grace});
}

TEST(Launch, TellsEachRankWhoItIs) {
  const Ended ended = shell(
      "OMP_NUM_THREADS= RANK=9 FULLSHARD_RANK=8 fullshard launch --ranks 2 -- sh -c "
      "'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR ${FULLSHARD_RANK-unset} "
      "${#FULLSHARD_JOB_SECRET}'");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("0/2 0/2 127.0.0.1 unset 32\n"));
  EXPECT_THAT(ended.output, HasSubstr("[1] 1/2 1/2 127.0.0.1 unset 32\n"));
}

TEST(Launch, SharesOneSecretAndPortAndCoresAmongTheRanks) {
  const Ended ended = shell(
      "unset OMP_NUM_THREADS; fullshard launch --ranks 64 -- sh -c "
      "'echo same $MASTER_PORT $FULLSHARD_JOB_SECRET $OMP_NUM_THREADS' | sed 's/^.*same //' | sort "
      "-u | wc -l");
  EXPECT_EQ(ended.output, "1\n");
}

TEST(Launch, EndsWellWhenAllRanksDo) {
  const LaunchResult result = launch_shell(4, "exit 0");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.failed_rank, std::nullopt);
}

TEST(Launch, NamesTheFirstRankThatFailsAndEndsTheOthers) {
  const LaunchResult result = launch_shell(4, "[ $RANK = 1 ] && exit 3; exec sleep 100");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.message, "rank 1: exited with status 3");
}

TEST(Launch, ShowsTheLastLinesOfTheRankThatFailed) {
  const Ended ended = shell(
      "fullshard launch --ranks 2 --notice 0 --tee none -- sh -c '[ $RANK = 1 ] || exec sleep 100; "
      "seq 1 20; "
      "printf half >&2; exit 3'");
  EXPECT_EQ(ended.status, 3);
  EXPECT_EQ(ended.output,
            "error: rank 1: exited with status 3\nlast lines of rank 1:\n  10\n  11\n  12\n  13\n  "
            "14\n  15\n  16\n  17\n  18\n  19\n  20\n  half\n");
}

// The output of a program that does not catch libtorch's error, and of one that prints what() of
// it.
TEST(Launch, LeavesStackFramesOutOfTheLastLines) {
  const TemporaryFolder folder;
  folder.write("trace",
               "Exception raised from meta at /torch/LinearAlgebra.cpp:206 (most recent call "
               "first):\n"
               "frame #0: c10::Error::Error(c10::SourceLocation) + 0x88 (0x7f1 in libc10.so)\n"
               "C++ CapturedTraceback:\n"
               "#4 c10::Error::Error(c10::SourceLocation) from ??:0\n"
               "frame #31: _start + 0x25 (0x5a0 in ./own)\n\n");
  const Ended ended = shell(
      "cd " + folder.path() +
      "; fullshard launch --ranks 1 --tee none --log-dir logs -- sh -c 'echo \"#1 of 3 tasks\"; "
      "echo \"  what():  mat1 and mat2 differ\"; cat trace; exit 3'");
  EXPECT_EQ(ended.output,
            "error: rank 0: exited with status 3\nlast lines of rank 0 (logs/rank-0.log):\n  #1 of "
            "3 tasks\n    what():  mat1 and mat2 differ\n");
  EXPECT_THAT(folder.read("logs/rank-0.log"), HasSubstr(folder.read("trace")));
}

// Rank 0 continues after the launcher has named rank 1.
TEST(Launch, SaysAgainWhyARankFailedWhenOthersHaveSpokenSince) {
  const TemporaryFolder folder;
  const auto said = [&](const std::string& rank_0, const std::string& output) {
    shell("cd " + folder.path() +
          "; fullshard launch --ranks 2 --notice 60 -- sh -c '[ $RANK = 1 ] && echo \"  what():  "
          "sizes differ\" && exit 3; until grep -q \"last lines\" said; do sleep 0.02; done; " +
          rank_0 + "' " + output);
    return folder.read("said");
  };
  const std::string once =
      "[1]   what():  sizes differ\nerror: rank 1: exited with status 3\nlast lines of rank 1:\n   "
      " "
      "what():  sizes differ\n";
  const std::string again = "error: rank 1: exited with status 3; it said: sizes differ\n";
  const std::string speaks = "echo rank 1 is missing; exit 1";
  EXPECT_EQ(said(speaks, "2>&1 | cat > said"), once + "rank 1 is missing\n" + again);
  EXPECT_EQ(said("exit 1", "2>&1 | cat > said"), once);
  // It writes to the terminal itself.
  EXPECT_EQ(said(speaks, "> said 2>&1"), once + "rank 1 is missing\n" + again);
}

// Rank 0 ends only after rank 1's end was noticed: of two that end at once, either may be named.
TEST(Launch, LetsTheOthersSayWhatTheyMiss) {
  const TemporaryFolder folder;
  const Ended ended =
      shell("cd " + folder.path() +
            "; fullshard launch --ranks 2 --notice 60 -- sh -c '[ $RANK = 1 ] && exit 3; until "
            "grep -q \"rank 1: exited with status 3\" errors; do sleep 0.02; done; echo rank 1 is "
            "missing; exit 1' 2> errors");
  EXPECT_EQ(ended.status, 3);
  EXPECT_EQ(folder.read("errors"), "error: rank 1: exited with status 3\n");
  EXPECT_THAT(ended.output, HasSubstr("rank 1 is missing\n"));
}

TEST(Launch, NamesTheSignalThatKilledARank) {
  const LaunchResult result = launch_shell(2, "[ $RANK = 0 ] && kill -9 $$; exec sleep 100");
  EXPECT_EQ(result.status, 137);
  EXPECT_EQ(result.message, "rank 0: killed by signal 9 (Killed)");
}

// Rank 1 of a program of ours explains its failure and exits.
LaunchResult launch_explained(const std::string& reason) {
  return launch(
      {.ranks = 2,
       .command = {"sh", "-c",
                   "[ $RANK = 0 ] && exec sleep 100; echo 'error: " + reason + "' >&2; exit 1"},
       .notice = std::chrono::milliseconds(0),
       .explains_itself = true,
       .tee = Tee::first});
}

TEST(Launch, GivesTheReasonOfARankThatExplainsItself) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch_explained("the disk is full").message, "rank 1: the disk is full");
  EXPECT_EQ(launch_explained("rank 1: barrier: no memory").message, "rank 1: barrier: no memory");
  EXPECT_EQ(launch_explained("rank 12 is missing").message, "rank 1: rank 12 is missing");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "error: the disk is full\nerror: rank 1: barrier: no memory\nerror: rank 12 is "
            "missing\n");
}

// Rank 1 of a program of ours is the first to fail; its output is not shown. Rank 0 does `then`
// after the launcher has noticed that.
LaunchResult launch_alike(const std::string& then) {
  const TemporaryFolder folder;
  return launch(
      {.ranks = 2,
       .command = {"sh", "-c",
                   "say() { printf \"error: a: is wrong:\\n  b\\n  c\\nerror: d\\n\" >&2; }; cd " +
                       folder.path() +
                       "; if [ $RANK = 1 ]; then echo $$ > new; mv new one; say; exit 4; fi; until "
                       "[ -e one ]; do sleep 0.02; done; while [ -e /proc/$(cat one) ]; do sleep "
                       "0.02; done; " +
                       then},
       .notice = std::chrono::hours(1),
       .explains_itself = true,
       .tee = Tee::first});
}

TEST(Launch, SaysOnceWhatRanksThatFailAlikeSayInSeveralLines) {
  const std::string explanation = "error: a: is wrong:\n  b\n  c\nerror: d\n";
  for (const std::string then : {"say; exit 4", "exit 0"}) {
    ::testing::internal::CaptureStderr();
    const LaunchResult result = launch_alike(then);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), explanation) << then;
    EXPECT_EQ(result.message, "rank 1: a: is wrong: b; c; d");
    EXPECT_EQ(result.status, 4);
  }
}

TEST(Launch, KillsRanksThatIgnoreTheRequestToEnd) {
  const auto start = std::chrono::steady_clock::now();
  const LaunchResult result =
      launch_shell(2, "[ $RANK = 1 ] && exit 4; trap '' TERM; exec sleep 100", 100ms);
  EXPECT_EQ(result.status, 4);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 50s);
}

TEST(Launch, RefusesAProgramThatIsNotThere) {
  const Ended ended = shell("fullshard launch --ranks 2 -- /no/such/program");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output,
            "error: launch: cannot start '/no/such/program': No such file or directory\n");
}

TEST(Launch, PassesAnInterruptOn) {
  for (const std::string name : {"INT", "TERM"}) {
    const TemporaryFolder ready;
    const Ended ended =
        shell("cd " + ready.path() +
              " && fullshard launch --ranks 4 --grace 60 -- sh -c 'trap \"echo $RANK was "
              "asked; exit 0\" " +
              name +
              "; touch $RANK; if [ $RANK = 3 ]; then until [ -e 0 ] && [ -e 1 ] && "
              "[ -e 2 ]; do sleep 0.02; done; kill -" +
              name + " $PPID; fi; while :; do sleep 0.05; done'");
    EXPECT_EQ(ended.status, 130);
    for (const std::string rank : {"0", "1", "2", "3"}) {
      EXPECT_THAT(ended.output, HasSubstr(rank + " was asked\n")) << name;
    }
  }
}

// A rank of several processes: the signal also reaches those that the leader does not pass it to.
TEST(Launch, SignalsTheWholeGroupOfARank) {
  const Ended ended = shell(
      "fullshard launch --ranks 1 --grace 60 -- sh -c 'trap : TERM; sh -c \"trap \\\"echo inner; "
      "exit\\\" "
      "TERM; "
      "kill -TERM $PPID; while :; do sleep 0.05; done\" & wait; wait; echo outer'");
  EXPECT_EQ(ended.status, 130);
  EXPECT_THAT(ended.output, HasSubstr("inner\n"));
}

TEST(Launch, KillsAtOnceWhenAskedTwice) {
  const Ended ended = shell(
      "fullshard launch --ranks 2 --grace 100000 -- sh -c 'trap \"\" INT TERM; [ $RANK = 0 ] || "
      "exec sleep 100; kill -INT $PPID; while :; do sleep 0.2; kill -TERM $PPID; done'");
  EXPECT_EQ(ended.status, 130);
  EXPECT_THAT(
      ended.output,
      HasSubstr("launch: SIGINT passed on; ranks that have not ended in 100000 s are killed, "
                "a second signal kills them at once\n"));
}

// A terminal that closes and the shell behind it may both send one, and the end of a session sends
// one in addition to SIGTERM.
TEST(Launch, TakesNoHangupForASecondRequest) {
  const Ended ended = shell(
      "fullshard launch --ranks 1 --grace 100000 -- sh -c 'trap \"\" HUP; trap \"echo saved; "
      "exit\" "
      "TERM; for i in 1 2 3; do kill -HUP $PPID; sleep 0.15; done; kill -TERM $PPID; sleep 0.15; "
      "while :; do kill -HUP $PPID; sleep 0.05; done'");
  EXPECT_EQ(ended.status, 130);
  EXPECT_THAT(ended.output, HasSubstr("saved\n"));
}

// SIGHUP is ignored under nohup, SIGINT in the background of a script. When the line is in the log,
// the signal has been handled or is next.
TEST(Launch, DoesNotHearASignalThatItWasStartedToIgnore) {
  for (const std::string name : {"HUP", "INT"}) {
    const TemporaryFolder folder;
    const Ended ended = shell("cd " + folder.path() + "; trap '' " + name +
                              "; fullshard launch --ranks 1 --grace 0 --log-dir logs -- sh -c "
                              "'kill -" +
                              name + " $PPID; kill -" + name +
                              " $PPID; echo asked; until grep -q asked logs/rank-0.log; do sleep "
                              "0.02; done; echo goes on'");
    EXPECT_EQ(ended.status, 0) << name;
    EXPECT_EQ(ended.output, "asked\ngoes on\n") << name;
  }
}

// The ranks write to a pipe whose end comes only when the last of them is gone.
TEST(Launch, RanksDieWithTheLauncher) {
  const Ended ended = shell(
      "fullshard launch --ranks 2 -- sh -c '[ $RANK = 0 ] && kill -9 $PPID; exec sleep 100'; echo "
      "over");
  EXPECT_THAT(ended.output, HasSubstr("over\n"));
}

TEST(Launch, WhatRanksHaveStartedDiesWithTheLauncherToo) {
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = shell(
      "fullshard launch --ranks 2 -- sh -c '(trap \"\" TERM INT HUP; exec sleep 100) & [ $RANK = 1 "
      "] && kill -9 $PPID; wait'; echo over");
  EXPECT_THAT(ended.output, HasSubstr("over\n"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 50s);
}

TEST(Launch, LeavesNothingBehindWhenARankEnds) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(shell("fullshard launch --ranks 2 -- sh -c 'sleep 100 & exit 0'").status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 50s);
}

TEST(Launch, GivesEveryArgumentToTheProgram) {
  EXPECT_EQ(shell("fullshard launch -n 1 -- echo --ranks 7 -- --help x").output,
            "--ranks 7 -- --help x\n");
  EXPECT_EQ(shell("fullshard launch -n 1 echo --ranks_x 7 --help").output, "--ranks_x 7 --help\n");
}

TEST(Launch, GivesRankZeroItsInput) {
  EXPECT_EQ(shell("echo words | fullshard launch -n 1 -- cat").output, "words\n");
}

TEST(Restart, StartsAllRanksAgainWithANewMeeting) {
  const Ended ended = shell(
      "fullshard launch --ranks 2 --max-restarts 3 -- sh -c 'echo try $TORCHELASTIC_RESTART_COUNT "
      "of $TORCHELASTIC_MAX_RESTARTS at $FULLSHARD_JOB_SECRET; [ $TORCHELASTIC_RESTART_COUNT = 2 ] "
      "|| exit 5'");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("launch: restart 1 of 3\n"));
  EXPECT_THAT(ended.output, HasSubstr("launch: restart 2 of 3\n"));
  EXPECT_THAT(ended.output, Not(HasSubstr("restart 3 of 3")));
  EXPECT_THAT(ended.output, HasSubstr("try 2 of 3 at "));
  const auto secret = [&](const std::string& head) {
    return ended.output.substr(ended.output.find(head) + head.size(), 32);
  };
  EXPECT_NE(secret("try 0 of 3 at "), secret("try 1 of 3 at "));
}

TEST(Restart, GivesUpWithTheLastFailure) {
  const Ended ended = shell(
      "fullshard launch --ranks 2 --max_restarts 1 -- sh -c 'exit $((7 + "
      "TORCHELASTIC_RESTART_COUNT))'");
  EXPECT_EQ(ended.status, 8);
}

// Our own programs: wrong usage, a model that does not fit, input that cannot be read.
TEST(Restart, DoesNotRepeatWhatCannotSucceed) {
  for (const int status : {1, 2, 3, 4, 5}) {
    const TemporaryFolder folder;
    ::testing::internal::CaptureStderr();
    const LaunchResult result =
        launch({.ranks = 1,
                .command = {"sh", "-c",
                            "echo start >> " + folder / "starts" +
                                "; echo 'error: why' >&2; exit " + std::to_string(status)},
                .explains_itself = true,
                .max_restarts = 2});
    ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(result.status, status);
    const bool is_refused = status >= 2 && status <= 4;
    EXPECT_EQ(folder.read("starts"), is_refused ? "start\n" : "start\nstart\nstart\n") << status;
  }
}

TEST(Restart, DoesNotFollowAnInterrupt) {
  const Ended ended = shell(
      "fullshard launch --ranks 2 --max-restarts 5 -- sh -c '[ $RANK = 0 ] && kill -INT $PPID; "
      "exec sleep 100'");
  EXPECT_EQ(ended.status, 130);
  EXPECT_THAT(ended.output, Not(HasSubstr("restart")));
}

TEST(Logs, AreKeptForEveryRank) {
  const TemporaryFolder folder;
  const std::string command = "fullshard launch --ranks 2 --log-dir " + (folder / "logs") +
                              " --tee 0 -- sh -c 'echo out $RANK; echo err $RANK >&2'";
  const Ended ended = shell(command);
  EXPECT_THAT(ended.output, HasSubstr("out 0\n"));
  EXPECT_THAT(ended.output, HasSubstr("err 0\n"));
  EXPECT_THAT(ended.output, Not(HasSubstr("1")));
  EXPECT_THAT(folder.read("logs/rank-0.log"), HasSubstr("out 0\n"));
  EXPECT_THAT(folder.read("logs/rank-1.log"), HasSubstr("out 1\n"));
  EXPECT_THAT(folder.read("logs/rank-1.log"), HasSubstr("err 1\n"));
  shell(command);
  EXPECT_EQ(folder.read("logs/rank-1.log").size(), folder.read("logs/rank-1.log.old").size());
}

TEST(Logs, AreNamedWithTheFailure) {
  const TemporaryFolder folder;
  const Ended ended =
      shell("cd " + folder.path() +
            "; fullshard launch --ranks 2 --notice 0 --log-dir logs --tee none -- sh -c "
            "'[ $RANK = 1 ] && echo no memory left && exit 1; exec sleep 100'");
  EXPECT_EQ(ended.output,
            "error: rank 1: exited with status 1\nlast lines of rank 1 (logs/rank-1.log):\n  no "
            "memory left\n");
}

TEST(Logs, RefuseAFolderThatCannotBe) {
  const Ended ended = shell("fullshard launch --ranks 2 --log-dir /proc/none/logs -- true");
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.output, HasSubstr("error: launch: cannot make the folder '/proc/none/logs': "));
}

// Listens on a port that it chooses.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    socklen_t length = sizeof address_;
    auto* generic = reinterpret_cast<sockaddr*>(&address_);
    address_.sin_family = AF_INET;
    ::bind(socket_, generic, length);
    ::listen(socket_, 1);
    ::getsockname(socket_, generic, &length);
  }
  ~TakenPort() { ::close(socket_); }
  std::string text() const { return std::to_string(ntohs(address_.sin_port)); }

 private:
  int socket_;
  sockaddr_in address_ = {};
};

TEST(Port, IsReplacedOnOneHostWhenItIsTaken) {
  const TakenPort taken;
  const Ended ended = shell("fullshard launch -n 1 --master-port " + taken.text() +
                            " -- sh -c 'echo meets at $MASTER_PORT'");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("warning: launch: port " + taken.text() +
                                      " is in use on this host; taking "));
  EXPECT_THAT(ended.output, Not(HasSubstr("meets at " + taken.text())));
}

TEST(Port, IsReplacedWhenAnotherLauncherHasIt) {
  std::string free;
  { free = TakenPort().text(); }
  const std::string words = "fullshard launch -n 1 --master-port " + free + " -- ";
  const Ended ended =
      shell(words + "sh -c 'echo outer at $MASTER_PORT; " + words + "printenv MASTER_PORT'");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("outer at " + free + "\n"));
  EXPECT_THAT(ended.output,
              HasSubstr("warning: launch: port " + free + " is in use on this host; taking "));
  EXPECT_FALSE(ended.output.ends_with("\n" + free + "\n"));
}

TEST(Port, IsNamedOnSeveralHostsWhenItIsTaken) {
  const TakenPort taken;
  const std::string several =
      "FULLSHARD_JOB_SECRET=x fullshard launch -n 1 --nnodes 2 "
      "--master-addr here --master-port " +
      taken.text();
  const Ended ended = shell(several + " --node-rank 0 -- true");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output, "error: launch: port " + taken.text() +
                              " is in use on this host, where the ranks would meet; choose another "
                              "with --master-port on all nodes\n");
  EXPECT_EQ(shell(several + " --node-rank 1 -- true").status, 0);
}

TEST(Port, IsTheUsersWhereItIsFree) {
  std::string free;
  { free = TakenPort().text(); }
  EXPECT_EQ(
      shell("fullshard launch -n 1 --main_process_port=" + free + " -- sh -c 'echo $MASTER_PORT'")
          .output,
      free + "\n");
}

TEST(Nodes, CountTheirRanksFromTheNodesBefore) {
  const Ended ended = shell(
      "FULLSHARD_JOB_SECRET=abc fullshard launch --nproc_per_node 2 --nnodes 3 --node_rank 1 "
      "--master_addr n0 -- sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
      "$GROUP_RANK/$GROUP_WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT $FULLSHARD_JOB_SECRET'");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("[2] 2/6 0/2 1/3 1 n0:29500 abc\n"));
  EXPECT_THAT(ended.output, HasSubstr("[3] 3/6 1/2 1/3 1 n0:29500 abc\n"));
}

TEST(Nodes, AreWarnedWhenNoTokenProtectsThem) {
  const Ended ended = shell(
      "fullshard launch -n 1 --nnodes 2 --node-rank 1 --master-addr n0 -- sh -c 'echo "
      "${FULLSHARD_JOB_SECRET-none}'");
  EXPECT_THAT(ended.output, HasSubstr("warning: launch: no job token, so anyone who reaches "
                                      "n0 can join the ranks; set FULLSHARD_JOB_SECRET"));
  EXPECT_THAT(ended.output, HasSubstr("[1] none\n"));
}

TEST(Nodes, TakeTheTokenFromAFileThatOthersCannotRead) {
  const TemporaryFolder folder;
  const std::string file = folder.write("token", "from a file\n");
  const std::string command = "FULLSHARD_JOB_SECRET_FILE=" + file +
                              " fullshard launch -n 1 --nnodes 2 --node-rank 1 --master-addr n0 -- "
                              "sh -c 'echo $FULLSHARD_JOB_SECRET'";
  const Ended open = shell("chmod 644 " + file + "; " + command);
  EXPECT_EQ(open.status, 2);
  EXPECT_THAT(open.output, HasSubstr("error: " + file + ": has mode 0644"));
  EXPECT_EQ(shell("chmod 600 " + file + "; " + command).output, "[1] from a file\n");
}

}  // namespace
}  // namespace fullshard::launch
