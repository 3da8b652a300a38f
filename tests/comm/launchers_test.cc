// SPDX-License-Identifier: Apache-2.0
// Programs that others start: torchrun, deepspeed and mpirun, where they are installed.
// FULLSHARD_PEERS may name the bin folder of a Python that has the first two.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace fullshard::comm {
namespace {

using ::testing::HasSubstr;

// The path of a program, or nothing.
std::string find_program(const std::string& name) {
  const char* peers = std::getenv("FULLSHARD_PEERS");
  const char* path = std::getenv("PATH");
  std::istringstream folders(fmt::format("{}:{}", peers ? peers : "", path ? path : ""));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + "/" + name;
    if (!folder.empty() && ::access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

// Both ranks meet and talk; what they print is compared.
void expect_two_ranks(const std::string& name, const std::string& arguments) {
  const std::string program = find_program(name);
  if (program.empty()) {
    GTEST_SKIP() << name << " is neither in PATH nor in the folder FULLSHARD_PEERS";
  }
  const std::string line = fmt::format(
      "DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 {} {} {}/comm_world_rank operations auto 2>&1", program,
      arguments, FULLSHARD_TEST_PROGRAMS);
  std::FILE* pipe = ::popen(line.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, got);
  EXPECT_EQ(WEXITSTATUS(::pclose(pipe)), 0) << output;
  EXPECT_THAT(output, HasSubstr("rank 0 of 2 on shm: "));
  EXPECT_THAT(output, HasSubstr("rank 1 of 2 on shm: "));
}

// Below those that the system hands out, and another in each process of a test.
int own_port() { return 20'000 + ::getpid() % 10'000; }

TEST(Launcher, TorchrunStartsRanks) {
  expect_two_ranks("torchrun",
                   fmt::format("--no-python --nproc-per-node 2 --master-port {}", own_port()));
}

TEST(Launcher, TorchrunWithAStoreOfItsOwnStartsRanks) {
  expect_two_ranks("torchrun", "--no-python --nproc-per-node 2 --standalone");
}

// It adds --local_rank=N to the arguments.
TEST(Launcher, DeepspeedStartsRanks) {
  expect_two_ranks("deepspeed",
                   fmt::format("--num_gpus 2 --no_python --master_port {}", own_port()));
}

TEST(Launcher, MpirunStartsRanks) {
  expect_two_ranks("mpirun", "-n 2 --oversubscribe --allow-run-as-root");
}

TEST(Launcher, SrunStartsRanks) {
  if (std::system("sinfo > /dev/null 2>&1") != 0) GTEST_SKIP() << "no Slurm answers (sinfo fails)";
  expect_two_ranks("srun", "--ntasks 2 --overcommit");
}

}  // namespace
}  // namespace fullshard::comm
