// What `launch` takes from a configuration, and what its flags win over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/shell.h"

namespace fullshard {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFile =
    "distributed_type: FSDP\n"
    "num_processes: 2\n"
    "main_process_port: 0\n"
    "fsdp_config:\n"
    "  fsdp_sharding_strategy: FULL_SHARD\n";

class LaunchConfig : public ::testing::Test {
 protected:
  // An empty home: no default file but the test's own.
  Ended launch(const std::string& words, const std::string& script) {
    return shell("cd " + folder_.path() +
                 "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; HOME=" + folder_.path() +
                 " CUDA_VISIBLE_DEVICES= fullshard launch " + words + " -- sh -c '" + script + "'");
  }

  TemporaryFolder folder_;
};

TEST_F(LaunchConfig, GivesTheNumberOfRanks) {
  folder_.write("fsdp.yaml", kFile);
  const Ended ended = launch("--config fsdp.yaml", "echo $RANK of $WORLD_SIZE");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("[1] 1 of 2\n"));
}

TEST_F(LaunchConfig, LosesToAFlag) {
  folder_.write("fsdp.yaml", kFile);
  EXPECT_EQ(launch("--config fsdp.yaml --ranks 1", "echo of $WORLD_SIZE").output, "of 1\n");
}

TEST_F(LaunchConfig, IsNamedToTheProgram) {
  folder_.write("fsdp.yaml", kFile);
  EXPECT_EQ(launch("--config fsdp.yaml --ranks 1", "echo $FULLSHARD_CONFIG").output,
            folder_ / "fsdp.yaml" + "\n");
}

TEST_F(LaunchConfig, IsCheckedBeforeAnythingStarts) {
  folder_.write("fsdp.yaml", std::string(kFile) + "  fsdp_offload_parms: true\n");
  const Ended ended = launch("--config fsdp.yaml", "touch started");
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.output, HasSubstr("error: fsdp.yaml:6: fsdp_config.fsdp_offload_parms:"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "started"));
}

TEST_F(LaunchConfig, OfTheQuestionnaireIsTheDefaultAndSaysSo) {
  std::filesystem::create_directories(folder_ / ".config/fullshard");
  const Ended made = shell("unset XDG_CONFIG_HOME; cd " + folder_.path() +
                           "; HOME=" + folder_.path() + " fullshard config < /dev/null");
  ASSERT_EQ(made.status, 0) << made.output;
  const Ended ended = launch("", "echo $RANK of $WORLD_SIZE");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("note: using " + folder_.path()));
  EXPECT_THAT(ended.output, HasSubstr("which `fullshard config` wrote\n"));
  EXPECT_THAT(ended.output, HasSubstr("[1] 1 of 2\n"));
}

TEST_F(LaunchConfig, NamesHostsAndThePlaceToMeet) {
  folder_.write("fsdp.yaml",
                "distributed_type: FSDP\nnum_machines: 2\nmachine_rank: 1\nnum_processes: 4\n"
                "main_process_ip: n0\nmain_process_port: 1234\nfsdp_config: {}\n");
  const Ended ended =
      launch("--config fsdp.yaml", "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT");
  EXPECT_THAT(ended.output, HasSubstr("[2] 2 of 4 at n0:1234\n"));
  EXPECT_THAT(ended.output, HasSubstr("[3] 3 of 4 at n0:1234\n"));
}

}  // namespace
}  // namespace fullshard
