// SPDX-License-Identifier: Apache-2.0
// Standard streams that are closed, full, or no longer read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shell.h"

namespace fullshard::launch {
namespace {

using ::testing::HasSubstr;

// The launcher has one more child than its ranks.
TEST(Streams, AKeeperThatIsGoneEndsNothing) {
  const TemporaryFolder folder;
  const Ended ended = shell(
      "cd " + folder.path() +
      "; fullshard launch --ranks 2 --max-restarts 1 -- sh -c 'echo $$ > $RANK; until [ -s 0 ] "
      "&& [ -s 1 ]; do sleep 0.02; done; if [ $RANK = 0 ]; then for child in $(cat "
      "/proc/$PPID/task/*/children); do grep -qx $child 0 1 || kill -9 $child; done; touch "
      "killed; fi; until [ -e killed ]; do sleep 0.02; done; [ $TORCHELASTIC_RESTART_COUNT = 1 "
      "] || exit 3; echo all is well'");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("all is well\n"));
}

// With number 1 and 2 free, logs would be opened as standard output and error.
TEST(Streams, ThatAreClosedEndNothing) {
  const TemporaryFolder folder;
  const Ended ended = shell("cd " + folder.path() +
                            "; fullshard launch --ranks 2 --log-dir logs -- sh -c 'echo out $RANK; "
                            "echo err $RANK >&2' <&- >&- 2>&-; echo status $?");
  EXPECT_EQ(ended.output, "status 0\n");
  for (const std::string rank : {"0", "1"}) {
    const std::string log = folder.read("logs/rank-" + rank + ".log");
    EXPECT_EQ(log.size(), 12u) << log;
    EXPECT_THAT(log, HasSubstr("out " + rank + "\n"));
    EXPECT_THAT(log, HasSubstr("err " + rank + "\n"));
  }
}

TEST(Streams, ThatNobodyReadsEndNothing) {
  const TemporaryFolder folder;
  const Ended ended = shell(
      "cd " + folder.path() +
      "; (fullshard launch --ranks 2 --log-dir logs --max-restarts 1 -- sh -c 'seq 1 100000; "
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; echo end' 2>&1; echo $? > status) | head "
      "-1 > /dev/null; cat status; tail -n 1 logs/rank-0.log; tail -n 1 logs/rank-1.log");
  EXPECT_EQ(ended.output, "0\nend\nend\n");
}

TEST(Streams, WithoutRoomAreAnExitStatus) {
  const TemporaryFolder folder;
  const Ended ended =
      shell("cd " + folder.path() +
            "; fullshard launch --ranks 1 --log-dir logs -- echo words > /dev/full");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.output,
            "error: standard output: cannot be written: No space left on device; the output of "
            "rank 0 is lost\n");
  EXPECT_EQ(folder.read("logs/rank-0.log"), "words\n");
  EXPECT_EQ(shell("fullshard --help > /dev/full").status, 1);
}

TEST(Streams, OfTheProgramHaveTheUsualSignal) {
  EXPECT_EQ(
      shell("fullshard launch -n 1 --log-dir /dev/shm/none-$$ -- sh -c 'yes | head -1'; rm -r "
            "/dev/shm/none-$$")
          .output,
      "y\n");
}

}  // namespace
}  // namespace fullshard::launch
