// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/shared_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kNotLong = std::chrono::milliseconds(300);

// What each of four ranks on two hosts is told, where `of_host` gives a host's folder.
std::vector<std::string> told(Strategy strategy,
                              const std::function<std::string(int host)>& of_host) {
  std::vector<std::string> errors(4);
  run_ranks({.ranks = 4, .backend = "gloo", .ranks_per_host = 2}, [&](const World& world) {
    auto way = plain_way(4, strategy);
    if (strategy == Strategy::hybrid_shard) way.options.sharding.sharding_factor = 2;
    const RankRun run(world, way.options, false);
    try {
      checkpoint::check_folder_is_shared(of_host(world.host_of(world.rank())), run.sharded,
                                         kNotLong);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      errors[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  return errors;
}

TEST(SharedFolder, OfOneDiskIsMadeAndLeftEmpty) {
  const CheckpointsFolder disk;
  const auto errors =
      told(Strategy::full_shard, [&](int) { return disk / "run" + "/checkpoints"; });
  EXPECT_THAT(errors, ElementsAre("", "", "", ""));
  EXPECT_THAT(entries_of(disk / "run"), ElementsAre("checkpoints"));
  EXPECT_THAT(entries_of(disk / "run" + "/checkpoints"), ElementsAre());
  std::filesystem::remove_all(disk / "run");
}

// The other host may even have a folder of this name.
TEST(SharedFolder, OfTwoDisksIsRefusedByAllRanksAlike) {
  const CheckpointsFolder disks[2];
  const auto errors = told(Strategy::full_shard, [&](int host) { return disks[host].path(); });
  EXPECT_THAT(errors[0],
              StartsWith(disks[0].path() + ": rank 0 writes there, and rank 2 on host "));
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr(" would too, but on another disk; save where all hosts see the same "
                              "disk, or on every host's own (--node-local, "),
                    Not(HasSubstr("rank 3"))));
  EXPECT_THAT(errors[3], HasSubstr(": rank 0 writes there, and rank 2 on host "));
  for (const auto& disk : disks) EXPECT_THAT(entries_of(disk.path()), ElementsAre());
}

// Rank 0's host holds all that there is to write.
TEST(SharedFolder, IsNotAskedOfHostsThatWriteNothing) {
  const CheckpointsFolder disks[2];
  for (const Strategy strategy : {Strategy::no_shard, Strategy::hybrid_shard}) {
    EXPECT_THAT(told(strategy, [&](int host) { return disks[host].path(); }),
                ElementsAre("", "", "", ""));
  }
}

TEST(SharedFolder, ThatCannotBeMadeIsNamed) {
  const CheckpointsFolder disk;
  std::ofstream(disk / "file") << "";
  run_ranks({.ranks = 2, .backend = "gloo", .ranks_per_host = 1}, [&](const World& world) {
    const RankRun run(world, plain_way(2).options, false);
    const auto error = error_of_call(
        [&] { checkpoint::check_folder_is_shared(disk / "file", run.sharded, kNotLong); });
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_THAT(error.what(), HasSubstr("file: is a file, expected a folder"));
  });
}

}  // namespace
}  // namespace fullshard::testing
