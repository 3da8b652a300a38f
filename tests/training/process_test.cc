// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: the same bits as threads, and faults that end with a name instead of a hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fullshard/comm/world/world.h"
#include "tests/files.h"
#include "tests/training/rank_processes.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Without the folders of tests that run beside this one.
std::vector<std::string> shared_memory_files() {
  auto names = entries_of("/dev/shm");
  // Of other tests; and what clang's OpenMP leaves of a process that was killed.
  std::erase_if(names, [](const std::string& name) {
    return name.starts_with("fullshard-test-") || name.starts_with("__KMP_");
  });
  return names;
}

TEST(Processes, GiveTheSameBitsUnderEveryStrategyStageAndBackend) {
  std::vector<std::vector<std::string>> runs;
  for (const std::string stage : {"0", "1", "2", "3"}) {
    for (const std::string backend : {"shm", "gloo"}) {
      runs.push_back({"--stage", stage, "--backend", backend});
    }
  }
  for (const std::string strategy : {"1", "2", "3", "4", "5"}) {
    runs.push_back({"--strategy", strategy, "--backend", "shm"});
  }
  std::string digest;
  for (auto& arguments : runs) {
    arguments.insert(arguments.end(), {"--steps", "3"});
    const auto results = run_rank_processes(2, arguments);
    for (const auto& result : results) EXPECT_EQ(result.exit_status, 0) << result.errors;
    ASSERT_THAT(results[0].output, StartsWith("digest "));
    if (digest.empty()) digest = results[0].output;
    EXPECT_EQ(results[0].output, digest)
        << arguments[0] << " " << arguments[1] << " " << arguments[3];
  }
}

struct FaultCase {
  std::string fault;
  std::string at;
  std::string backend = "shm";
  std::vector<std::string> more = {};
};

// The ranks that are well end and name rank 1; returns how many seconds after its end.
double expect_named(const FaultCase& c, const std::vector<std::string>& words) {
  SCOPED_TRACE(c.fault + " at " + c.at + " over " + c.backend);
  std::vector<std::string> arguments = {"--backend", c.backend, "--fault", c.fault, "--at", c.at};
  arguments.insert(arguments.end(), c.more.begin(), c.more.end());
  const auto results = run_rank_processes(3, arguments, 200, /*expendable=*/1);
  for (const int rank : {0, 2}) {
    const auto& result = results[rank];
    EXPECT_EQ(result.exit_status, 1) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("rank 1"));
    for (const auto& word : words) EXPECT_THAT(result.errors, HasSubstr(word));
  }
  return std::max(results[0].ended, results[2].ended) - results[1].ended;
}

// Within two seconds. A busy machine may hold a rank up once, but not every time.
void expect_death_named(const FaultCase& c) {
  constexpr double kPromised = 2;
  double least = 1e9;
  for (int attempt = 0; attempt < 3 && least >= kPromised; ++attempt) {
    least = std::min(least, expect_named(c, {"died", "last act"}));
  }
  EXPECT_LT(least, kPromised) << c.at << " over " << c.backend;
}

TEST(Faults, ARankKilledInAnyPhaseIsNamedByTheOthersWithinTwoSeconds) {
  const auto before = shared_memory_files();
  for (const std::string at :
       {"forward", "backward", "start of backward", "clip", "step", "gather"}) {
    expect_death_named({"kill", at});
  }
  expect_death_named({"kill", "backward", "shm", {"--private-copies"}});
  EXPECT_EQ(shared_memory_files(), before);
}

TEST(Faults, ARankKilledIsNamedOverGlooToo) { expect_death_named({"kill", "backward", "gloo"}); }

TEST(Faults, ARankThatEndsWithAnExceptionIsNamed) {
  expect_named({"throw", "forward"}, {"last act"});
  expect_named({"throw", "start of backward"}, {"last act"});
}

TEST(Faults, ARankThatDoesNotComeIsNamedAfterTheTimeout) {
  expect_named({"sleep", "backward", "shm", {"--timeout-ms", "3000"}},
               {"has not come", "step timeout", "unit"});
}

// Rank 1 makes a barrier of its own; both ranks end and say so.
void expect_told(const std::string& at, const std::vector<std::string>& words) {
  const auto results =
      run_rank_processes(2, {"--fault", "disagree", "--at", at, "--backend", "shm"}, 200);
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_status, 1);
    for (const auto& word : words) EXPECT_THAT(result.errors, HasSubstr(word));
  }
}

TEST(Faults, RanksThatDisagreeAreToldSo) { expect_told("backward", {"ranks disagree"}); }

TEST(Faults, RanksThatWaitForEachOtherInDifferentGroupsAreToldSo) {
  expect_told("step", {"ranks wait for each other", "barrier of a barrier of one rank"});
}

}  // namespace
}  // namespace fullshard::testing
