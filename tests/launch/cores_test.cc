// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "shell.h"

namespace fullshard::launch {
namespace {

TEST(Cores, AreDividedWithoutOverlap) {
  const std::vector<int> cores = {0, 8, 1, 9, 2};
  EXPECT_EQ(cores_of(cores, 0, 2), (std::vector<int>{0, 8}));
  EXPECT_EQ(cores_of(cores, 1, 2), (std::vector<int>{1, 9, 2}));
  EXPECT_EQ(cores_of(cores, 4, 5), (std::vector<int>{2}));
}

TEST(Cores, MustBeEnoughForTheRanks) {
  try {
    cores_of({3, 4}, 0, 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "launch: --bind cores needs a core for each of the 3 ranks, but 2 may be used; use "
        "--bind none or fewer ranks");
  }
}

TEST(Cores, OfRanksAreTheirOwn) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "this process may use one core only";
  const Ended ended = shell(
      "fullshard launch -n 2 --bind cores -- sh -c 'echo $RANK on $(grep Cpus_allowed_list "
      "/proc/self/status | cut -f 2)' | sed 's/.*on //' | sort -u | wc -l");
  EXPECT_EQ(ended.output, "2\n");
}

TEST(Cores, GiveEveryRankItsShareOfThreads) {
  const std::string share = std::to_string(std::max(1, num_usable_cores() / 2));
  EXPECT_THAT(shell("unset OMP_NUM_THREADS; fullshard launch -n 2 -- sh -c 'echo t "
                    "$OMP_NUM_THREADS'")
                  .output,
              ::testing::HasSubstr("[1] t " + share + "\n"));
  EXPECT_THAT(
      shell("OMP_NUM_THREADS=7 fullshard launch -n 2 -- sh -c 'echo t $OMP_NUM_THREADS'").output,
      ::testing::HasSubstr("[1] t 7\n"));
}

}  // namespace
}  // namespace fullshard::launch
