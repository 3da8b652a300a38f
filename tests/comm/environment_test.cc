// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/environment.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "tests/launcher_settings.h"

namespace fullshard::comm {
namespace {

using testing::Settings;
using testing::told_by;

Environment read(const Settings& settings, const WorldOptions& options = {}) {
  return read_environment(options, told_by(settings));
}

std::string error_of_reading(const Settings& settings, const WorldOptions& options = {}) {
  return error_of([&] { read(settings, options); });
}

const Settings kTorchrun = {{"RANK", "3"},        {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},  {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1234"}};

Settings with(Settings settings, const Settings& more) {
  for (const auto& [name, value] : more) settings[name] = value;
  return settings;
}

TEST(Environment, IsOneRankWhereNothingIsSet) {
  const Environment found = read({});
  EXPECT_EQ(found.launcher, "none");
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(found.size, 1);
}

TEST(Environment, ReadsTorchrun) {
  const Environment found = read(kTorchrun);
  EXPECT_EQ(found.launcher, "torchrun");
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 4);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 2);
  EXPECT_EQ(found.master_address, "a");
  EXPECT_EQ(found.master_port, 1234);
  EXPECT_FALSE(found.agent_store);
}

// deepspeed's launcher has its own names beside torchrun's.
TEST(Environment, ReadsDeepspeed) {
  const Environment found = read({{"RANK", "3"},
                                  {"WORLD_SIZE", "4"},
                                  {"LOCAL_RANK", "1"},
                                  {"LOCAL_SIZE", "2"},
                                  {"CROSS_RANK", "1"},
                                  {"CROSS_SIZE", "2"},
                                  {"MASTER_ADDR", "n0"},
                                  {"MASTER_PORT", "29500"}});
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.local_size, 2);
  EXPECT_EQ(found.master_address, "n0");
  EXPECT_FALSE(found.is_one_host());
}

// accelerate launch --no_python: torchrun's variables, with its own about the configuration.
TEST(Environment, ReadsAccelerate) {
  const Environment found = read(with(kTorchrun, {{"ACCELERATE_USE_FSDP", "true"},
                                                  {"ACCELERATE_MIXED_PRECISION", "bf16"},
                                                  {"FSDP_SHARDING_STRATEGY", "FULL_SHARD"},
                                                  {"FSDP_VERSION", "1"},
                                                  {"LOCAL_SIZE", "9"}}));
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 4);
  EXPECT_EQ(found.local_size, 2);
}

TEST(Environment, KnowsWhenAllRanksAreOnThisHost) {
  EXPECT_FALSE(read(kTorchrun).is_one_host());
  EXPECT_TRUE(read(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "4"}})).is_one_host());
  EXPECT_TRUE(read(with(kTorchrun, {{"MASTER_ADDR", "127.0.0.1"}})).is_one_host());
}

TEST(Environment, ReadsTheTokenAndTheInterface) {
  const Environment found =
      read(with(kTorchrun, {{"FULLSHARD_JOB_SECRET", "token"}, {"GLOO_SOCKET_IFNAME", "eth1"}}));
  EXPECT_EQ(found.secret, "token");
  EXPECT_EQ(found.interface, "eth1");
  EXPECT_EQ(error_of_reading(with(kTorchrun, {{"FULLSHARD_JOB_SECRET_FILE", "/no/such/file"}})),
            "/no/such/file: cannot be read: No such file or directory");
}

TEST(Environment, ReadsHowGpusSum) {
  EXPECT_EQ(read(kTorchrun).device_sums, DeviceSums::ordered);
  const auto nccl = with(kTorchrun, {{"FULLSHARD_DEVICE_SUMS", "nccl"}});
  EXPECT_EQ(read(nccl).device_sums, DeviceSums::nccl);
  EXPECT_EQ(read(nccl, {.device_sums = DeviceSums::ordered}).device_sums, DeviceSums::ordered);
  EXPECT_EQ(error_of_reading(with(kTorchrun, {{"FULLSHARD_DEVICE_SUMS", "exact"}})),
            "environment: FULLSHARD_DEVICE_SUMS is 'exact', expected ordered or nccl");
}

TEST(Environment, IsAClientOfTorchrunsOwnStore) {
  const Environment found = read(with(
      kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_TRUE(found.agent_store);
  EXPECT_EQ(found.restart, 2);
}

TEST(Environment, OurOwnNamesWinOverTorchruns) {
  const Environment found =
      read(with(kTorchrun, {{"FULLSHARD_RANK", "1"}, {"FULLSHARD_JOB_SECRET", "abc"}}));
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 4);
  EXPECT_EQ(found.secret, "abc");
}

TEST(Environment, OptionsWinOverVariables) {
  const Environment found = read(kTorchrun, {.rank = 0, .master_port = 99});
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(found.size, 4);
  EXPECT_EQ(found.master_port, 99);
  const Environment alone = read({{"RANK", "x"}}, {.rank = 1, .size = 2, .master_address = "b"});
  EXPECT_EQ(alone.launcher, "options");
  EXPECT_EQ(alone.rank, 1);
  EXPECT_EQ(alone.master_port, 29500);
}

TEST(Environment, ReadsSlurm) {
  const Settings slurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_JOB_ID", "812"},
                          {"SLURM_JOB_NODELIST", "n[01-03,7],m2"}};
  const Environment found = read(slurm);
  EXPECT_EQ(found.launcher, "SLURM");
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.size, 7);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 2);
  EXPECT_EQ(found.master_address, "n01");
  EXPECT_GE(found.master_port, 20000);
  EXPECT_LT(found.master_port, 30000);
  EXPECT_NE(found.master_port, read(with(slurm, {{"SLURM_JOB_ID", "813"}})).master_port);
  EXPECT_EQ(read(with(slurm, {{"MASTER_ADDR", "x"}})).master_address, "x");
}

TEST(Environment, IsOneRankInsideABareSlurmAllocation) {
  EXPECT_EQ(read({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}}).size, 1);
}

TEST(Environment, ReadsOpenMpi) {
  const Settings mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const Environment found = read(mpi);
  EXPECT_EQ(found.launcher, "Open MPI");
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 2);
  EXPECT_EQ(found.master_address, "127.0.0.1");
  EXPECT_EQ(error_of_reading(with(
                mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})),
            "environment: rank 1 of 2 (Open MPI) knows no master address; set MASTER_ADDR to rank "
            "0's host");
}

TEST(Environment, PrefersMpiToTheBatchStepItRunsIn) {
  const Environment found = read({{"SLURM_PROCID", "0"},
                                  {"SLURM_NTASKS", "2"},
                                  {"PMI_RANK", "1"},
                                  {"PMI_SIZE", "2"},
                                  {"MPI_LOCALRANKID", "1"},
                                  {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(found.launcher, "PMI");
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.local_rank, 1);
}

TEST(Environment, NamesVariablesThatContradict) {
  EXPECT_EQ(error_of_reading({{"RANK", "0"}}),
            "environment: RANK is set but WORLD_SIZE is not; set both or neither");
  EXPECT_EQ(error_of_reading({{"FULLSHARD_WORLD_SIZE", "2"}}),
            "environment: FULLSHARD_WORLD_SIZE is set but RANK is not; set both or neither");
  EXPECT_EQ(error_of_reading(with(kTorchrun, {{"RANK", "4"}})),
            "environment: RANK is 4, but WORLD_SIZE is 4");
  EXPECT_EQ(error_of_reading(with(kTorchrun, {{"WORLD_SIZE", "0"}})),
            "environment: WORLD_SIZE is 0, expected at least 1");
  EXPECT_EQ(error_of_reading(with(kTorchrun, {{"MASTER_PORT", "70000"}})),
            "environment: MASTER_PORT is 70000, expected 1 to 65535");
  EXPECT_EQ(error_of_reading(with(kTorchrun, {{"LOCAL_RANK", "2"}})),
            "world: local rank is 2, but 2 ranks are on this host");
}

TEST(Environment, NamesWhatIsNotANumber) {
  for (const char* text : {"two", "-1", "1.5", "3 ", "99999999999"}) {
    EXPECT_EQ(error_of_reading(with(kTorchrun, {{"RANK", text}})),
              fmt::format("environment: RANK is '{}', expected a number", text));
  }
}

TEST(Environment, ChecksTheOptions) {
  EXPECT_EQ(error_of_reading({}, {.rank = 1}),
            "world: options.rank is 1 but options.size is not set; set both");
  EXPECT_EQ(error_of_reading({}, {.size = 2}),
            "world: options.size is 2 but options.rank is not set; set both");
  EXPECT_EQ(error_of_reading({}, {.rank = 2, .size = 2}), "world: rank is 2, expected 0 to 1");
}

TEST(Environment, TreatsAnEmptyVariableAsUnset) {
  EXPECT_EQ(read({{"RANK", ""}, {"WORLD_SIZE", ""}}).size, 1);
}

}  // namespace
}  // namespace fullshard::comm
