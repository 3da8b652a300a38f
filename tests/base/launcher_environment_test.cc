// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/launcher_environment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "fullshard/base/error.h"
#include "tests/files.h"
#include "tests/launcher_settings.h"

namespace fullshard::base {
namespace {

using testing::Settings;
using testing::TemporaryFolder;
using testing::told_by;

TEST(LauncherVariable, IsANumberOrAnErrorThatNamesIt) {
  EXPECT_EQ((LauncherVariable{"RANK", "12"}.number()), 12);
  EXPECT_EQ((LauncherVariable{"RANK", std::nullopt}.number()), std::nullopt);
  for (const char* text : {"two", "1 ", "-1", "99999999999", "0x1"}) {
    const LauncherVariable variable{"RANK", text};
    try {
      variable.number();
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), fmt::format("environment: RANK is '{}', expected a number", text));
      EXPECT_EQ(error.kind(), ErrorKind::usage);
    }
  }
}

TEST(LauncherEnvironment, HasNothingWhereNothingIsSet) {
  const auto found = told_by({});
  EXPECT_FALSE(found.is_rank);
  EXPECT_FALSE(found.is_restart());
  EXPECT_FALSE(found.torchrun.rank || found.open_mpi.rank || found.pmi.rank || found.slurm.task);
  EXPECT_FALSE(found.meeting || found.terminal || found.run_lock || found.config.file);
  EXPECT_FALSE(found.measured);
  EXPECT_EQ(found.job_secret(), "");
}

// An empty text says as little as none, and the next name is asked.
TEST(LauncherEnvironment, PrefersOurOwnNames) {
  const auto both = told_by({{"FULLSHARD_RANK", "1"}, {"RANK", "2"}});
  EXPECT_EQ(both.torchrun.rank.name, "FULLSHARD_RANK");
  EXPECT_EQ(both.torchrun.rank.text, "1");
  const auto empty = told_by({{"FULLSHARD_RANK", ""}, {"RANK", "2"}});
  EXPECT_EQ(empty.torchrun.rank.name, "RANK");
  EXPECT_EQ(empty.torchrun.rank.text, "2");
  // The last name is the one that messages ask for.
  EXPECT_EQ(told_by({}).master_address.name, "MASTER_ADDR");
}

TEST(LauncherEnvironment, KnowsARankByAnyLauncher) {
  EXPECT_TRUE(told_by({{"FULLSHARD_RANK", "0"}}).is_rank);
  EXPECT_TRUE(told_by({{"FULLSHARD_WORLD_SIZE", "2"}}).is_rank);
  EXPECT_TRUE(told_by({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).is_rank);
  EXPECT_TRUE(told_by({{"WORLD_SIZE", "2"}}).is_rank);  // it would run alone otherwise
  EXPECT_TRUE(told_by({{"OMPI_COMM_WORLD_RANK", "0"}}).is_rank);
  EXPECT_TRUE(told_by({{"PMI_RANK", "0"}}).is_rank);
  const Settings task = {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}};
  EXPECT_TRUE(told_by(task).is_rank);
}

TEST(LauncherEnvironment, TakesNoAllocationOrHalfAPairForARank) {
  EXPECT_FALSE(told_by({{"RANK", "0"}}).is_rank);
  for (const char* size : {"", "0", "1"}) EXPECT_FALSE(told_by({{"WORLD_SIZE", size}}).is_rank);
  EXPECT_FALSE(told_by({{"SLURM_NTASKS", "2"}}).is_rank);
  EXPECT_FALSE(told_by({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}).is_rank);
  const Settings single = {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "1"}};
  EXPECT_FALSE(told_by(single).is_rank);
}

TEST(LauncherEnvironment, ReadsTheStepOfSlurmBeforeItsAllocation) {
  const auto slurm = told_by({{"SLURM_STEP_NUM_TASKS", "2"},
                              {"SLURM_NTASKS", "8"},
                              {"SLURM_NNODES", "4"},
                              {"SLURM_STEP_NODELIST", "n1"},
                              {"SLURM_JOB_NODELIST", "n[1-4]"},
                              {"SLURM_JOBID", "7"}})
                         .slurm;
  EXPECT_EQ(slurm.num_tasks.number(), 2);
  EXPECT_EQ(slurm.num_nodes.number(), 4);
  EXPECT_EQ(slurm.hosts.text, "n1");
  EXPECT_EQ(slurm.job.text, "7");
}

// What was read stays, though `fullshard` sets variables for the ranks that it starts.
TEST(LauncherEnvironment, IsAValueOfTheMomentItWasRead) {
  ::setenv(LauncherEnvironment::kTerminal, "17", 1);
  const auto before = LauncherEnvironment::of_process();
  ::unsetenv(LauncherEnvironment::kTerminal);
  EXPECT_EQ(before.terminal.text, "17");
  EXPECT_FALSE(LauncherEnvironment::of_process().terminal);
}

TEST(LauncherEnvironment, TakesTheSecretBeforeItsFile) {
  const TemporaryFolder folder;
  const std::string file = folder.file("secret");
  std::ofstream(file) << "from the file\nmore\n";
  ::chmod(file.c_str(), 0600);
  const Settings named = {{"FULLSHARD_JOB_SECRET_FILE", file}};
  EXPECT_EQ(told_by(named).job_secret(), "from the file");
  EXPECT_EQ(told_by({{"FULLSHARD_JOB_SECRET", "said"}, {"FULLSHARD_JOB_SECRET_FILE", "/none"}})
                .job_secret(),
            "said");
}

TEST(LauncherEnvironment, KnowsRanksThatWereStartedAgain) {
  EXPECT_FALSE(told_by({{"TORCHELASTIC_RESTART_COUNT", "0"}}).is_restart());
  EXPECT_TRUE(told_by({{"TORCHELASTIC_RESTART_COUNT", "2"}}).is_restart());
}

}  // namespace
}  // namespace fullshard::base
