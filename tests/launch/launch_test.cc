#include "fullshard/launch/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

LaunchResult launch_shell(int ranks, const std::string& script,
                          std::chrono::milliseconds grace = 5s) {
  return launch({.ranks = ranks, .command = {"sh", "-c", script}, .notice = 0ms, .grace = grace});
}

struct Ended {
  int status = 0;
  std::string output;
};

// The command line as a user types it; both streams.
Ended shell(const std::string& line) {
  std::FILE* pipe =
      ::popen(("PATH=" FULLSHARD_BINARIES ":$PATH; (" + line + ") 2>&1").c_str(), "r");
  Ended ended;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    ended.output.append(buffer, got);
  }
  ended.status = WEXITSTATUS(::pclose(pipe));
  return ended;
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
  const LaunchResult result = launch_shell(3, "exit 0");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.failed_rank, std::nullopt);
}

TEST(Launch, NamesTheFirstRankThatFailsAndEndsTheOthers) {
  const LaunchResult result = launch_shell(3, "[ $RANK = 1 ] && exit 3; exec sleep 100");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.message, "rank 1: exited with status 3");
}

TEST(Launch, LetsTheOthersSayWhatTheyMiss) {
  const Ended ended = shell(
      "fullshard launch --ranks 2 -- sh -c '[ $RANK = 1 ] && exit 3; sleep 0.2; echo rank 1 is "
      "missing; exit 1'");
  EXPECT_EQ(ended.status, 3);
  EXPECT_THAT(ended.output, HasSubstr("error: rank 1: exited with status 3\n"));
  EXPECT_THAT(ended.output, HasSubstr("rank 1 is missing\n"));
}

TEST(Launch, NamesTheSignalThatKilledARank) {
  const LaunchResult result = launch_shell(2, "[ $RANK = 0 ] && kill -9 $$; exec sleep 100");
  EXPECT_EQ(result.status, 137);
  EXPECT_EQ(result.message, "rank 0: killed by signal 9 (Killed)");
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
  const Ended ended = shell(
      "fullshard launch --ranks 2 -- sh -c 'trap \"echo asked to stop; exit 0\" INT; [ $RANK = 1 ] "
      "&& kill -INT $PPID; while :; do sleep 0.05; done'");
  EXPECT_EQ(ended.status, 130);
  EXPECT_THAT(ended.output, HasSubstr("asked to stop\n"));
}

// The ranks write to a pipe whose end comes only when the last of them is gone.
TEST(Launch, RanksDieWithTheLauncher) {
  const Ended ended = shell(
      "fullshard launch --ranks 2 -- sh -c '[ $RANK = 0 ] && kill -9 $PPID; exec sleep 100'; echo "
      "over");
  EXPECT_THAT(ended.output, HasSubstr("over\n"));
}

TEST(Launch, GivesEveryArgumentToTheProgram) {
  const Ended ended = shell("fullshard launch -n 1 -- echo --ranks 7 -- --help x");
  EXPECT_EQ(ended.output, "--ranks 7 -- --help x\n");
}

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

TEST(CommandLine, RefusesWrongNumbersAndMissingPrograms) {
  EXPECT_EQ(shell("fullshard launch --ranks 0 -- true").status, 2);
  EXPECT_EQ(shell("fullshard launch -- true").status, 2);
  const Ended ended = shell("fullshard launch --ranks 2");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output, "error: launch: no program given; write it after '--'\n");
}

}  // namespace
}  // namespace fullshard
