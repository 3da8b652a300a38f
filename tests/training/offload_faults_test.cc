// SPDX-License-Identifier: Apache-2.0
// Ranks whose parameters and states rest on a disk, and what is left of a run that ends badly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"
#include "tests/training/rank_processes.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct DiskRun {
  TemporaryFolder disk{};
  CheckpointsFolder checkpoints{};

  std::vector<RankResult> run(int ranks, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"--disk", disk.path(), "--checkpoints",
                                          checkpoints.path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_rank_program(ranks, {.name = "offload_rank", .arguments = arguments});
  }
};

std::string digest_without_faults() {
  const auto results = DiskRun().run(2);
  EXPECT_EQ(results[0].exit_status, 0) << results[0].errors;
  EXPECT_THAT(results[0].output, StartsWith("digest "));
  return results[0].output;
}

// The run goes on from the checkpoint of the step before, in the same folders.
void expect_resumes(const DiskRun& run, const std::string& digest) {
  EXPECT_THAT(entries_of(run.disk.path()), IsEmpty());
  EXPECT_EQ(stored::last_checkpoint(run.checkpoints.path()).step, 1);
  const auto again = run.run(2);
  EXPECT_EQ(again[0].exit_status, 0) << again[0].errors;
  EXPECT_EQ(again[0].output, digest);
  EXPECT_THAT(entries_of(run.disk.path()), IsEmpty());
}

TEST(OffloadFaultsSlow, ARankKilledInAnyPhaseLeavesNothingOnTheDiskAndTheRunGoesOn) {
  const auto digest = digest_without_faults();
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"kill", "forward"},       {"kill-read", "forward"}, {"kill", "backward"},
      {"kill-read", "backward"}, {"kill", "clip"},         {"kill", "step"},
      {"kill-read", "step"},     {"kill-write", "step"},   {"kill", "save"}};
  for (const auto& [fault, at] : faults) {
    SCOPED_TRACE(fault + " at " + at);
    const DiskRun run;
    const auto results = run.run(2, {"--fault", fault, "--at", at});
    EXPECT_EQ(results[1].exit_status, 128 + 9);
    EXPECT_EQ(results[0].exit_status, 1);
    EXPECT_THAT(results[0].errors, HasSubstr("rank 1"));
    expect_resumes(run, digest);
  }
}

TEST(OffloadFaultsSlow, ADiskThatFailsInsideAStepEndsAllRanksWithTheReason) {
  const auto digest = digest_without_faults();
  struct Case {
    std::string fault, at, operation;
    std::vector<std::string> more;
  };
  const std::vector<Case> cases = {
      {"eio-read", "forward", "read", {}}, {"eio-read", "backward", "read", {"--streams"}},
      {"eio-read", "clip", "read", {}},    {"eio-read", "step", "read", {"--streams"}},
      {"eio-write", "step", "write", {}},  {"eio-write", "step", "write", {"--streams"}}};
  for (const auto& [fault, at, operation, more] : cases) {
    SCOPED_TRACE(fault + " at " + at);
    const DiskRun run;
    auto words = more;
    words.insert(words.end(), {"--fault", fault, "--at", at});
    const auto results = run.run(2, words);
    EXPECT_EQ(results[1].exit_status, 1);
    EXPECT_THAT(results[1].errors, HasSubstr("offload: rank 1, '" + run.disk.path() + "': cannot " +
                                             operation + " slot "));
    EXPECT_THAT(results[1].errors, HasSubstr("at byte 0: Input/output error"));
    EXPECT_EQ(results[0].exit_status, 1);
    EXPECT_THAT(results[0].errors, HasSubstr("rank 1"));
    EXPECT_THAT(results[0].errors, HasSubstr("it ended with an exception"));
    expect_resumes(run, digest);
  }
}

}  // namespace
}  // namespace fullshard::testing
