// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/late_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "fullshard/launch/launch.h"

namespace fullshard::launch {
namespace {

using ::testing::MatchesRegex;

std::string late_by(const std::string& rank, const std::string& late, const std::string& act) {
  return "warning: rank " + rank + ": barrier (group world) has waited 5.0" + rank +
         " s for rank " + late + "; its last act: " + act + "; it is given up after 600 s";
}

TEST(LateLines, ShowOnceWhatSeveralSayOfTheShownRank) {
  ::testing::internal::CaptureStderr();
  LateLines lines(0);
  for (const std::string rank : {"1", "2"}) {
    lines.hear(late_by(rank, "0", "barrier"));
    lines.hear(late_by(rank, "3", "barrier"));  // rank 0 reports that itself
    lines.hear(late_by(rank, "0", "all_gather"));
    lines.hear("warning: something else for rank 0; ");
    lines.hear(late_by(rank, "0", "broadcast").substr(sizeof "warning:"));  // not a warning
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            late_by("1", "0", "barrier") + "\n" + late_by("1", "0", "all_gather") + "\n");
}

// All of four ranks write lines.
std::string shown_of(const std::string& script, bool explains_itself) {
  ::testing::internal::CaptureStderr();
  const LaunchResult result = launch({.ranks = 4,
                                      .command = {"sh", "-c", script},
                                      .explains_itself = explains_itself,
                                      .tee = Tee::first});
  EXPECT_EQ(result.status, 0);
  return ::testing::internal::GetCapturedStderr();
}

TEST(LateLines, OfOurProgramsAreShownWhereOnlyRankZerosOutputIs) {
  const std::string script = "[ $RANK = 0 ] || { echo \"warning: something else\"; echo \"" +
                             late_by("$RANK", "0", "none") + "\"; echo \"" +
                             late_by("$RANK", "2", "none") + "\"; } >&2";
  EXPECT_THAT(
      shown_of(script, true),
      MatchesRegex("warning: rank [1-3]: barrier \\(group world\\) has waited 5.0[1-3] s for "
                   "rank 0; its last act: none; it is given up after 600 s\n"));
  EXPECT_EQ(shown_of(script, false), "");
}

}  // namespace
}  // namespace fullshard::launch
