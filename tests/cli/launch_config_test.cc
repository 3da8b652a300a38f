// SPDX-License-Identifier: Apache-2.0
// What `launch` takes from a configuration, and which of its flags take precedence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFile =
    "distributed_type: FSDP\n"
    "num_processes: 2\n"
    "main_process_port: 0\n"
    "fsdp_config:\n"
    "  fsdp_sharding_strategy: FULL_SHARD\n";

class LaunchConfig : public ::testing::Test {
 protected:
  // An empty home: no default file but the test's own.
  launch::Ended launch(const std::string& words, const std::string& script) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; HOME=" + folder_.path() +
                         " CUDA_VISIBLE_DEVICES= fullshard launch " + words + " -- sh -c '" +
                         script + "'");
  }

  launch::TemporaryFolder folder_;
};

TEST_F(LaunchConfig, GivesTheNumberOfRanks) {
  folder_.write("fsdp.yaml", kFile);
  const launch::Ended ended = launch("--config fsdp.yaml", "echo $RANK of $WORLD_SIZE");
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

TEST_F(LaunchConfig, ReachesTheProgramWithAllOfItsFlags) {
  folder_.write("fsdp.yaml", kFile);
  folder_.write("more.json", "{}");
  const std::string show =
      "echo \"<$FULLSHARD_CONFIG> <$FULLSHARD_FSDP> <$FULLSHARD_FSDP_CONFIG> <$FULLSHARD_SET>\"";
  EXPECT_EQ(
      launch("--ranks 1 --fsdp \"full_shard auto_wrap\" --fsdp-config more.json", show).output,
      "<> <full_shard auto_wrap> <" + folder_ / "more.json" + "> <>\n");
  EXPECT_EQ(launch("--ranks 1 --config fsdp.yaml --set fsdp_config.fsdp_sharding_strategy=2 --set "
                   "mixed_precision=bf16",
                   show)
                .output,
            "<" + folder_ / "fsdp.yaml" +
                "> <> <> <fsdp_config.fsdp_sharding_strategy=2\nmixed_precision=bf16>\n");
}

// The program chooses its sharding itself and never asks for a plan.
TEST_F(LaunchConfig, ThatTheProgramDoesNotReadIsWarnedOf) {
  folder_.write("fsdp.yaml", kFile);
  const launch::Ended ended = launch("--config fsdp.yaml", FULLSHARD_BINARIES "/own_loop run 10");
  EXPECT_EQ(ended.status, 0) << ended.output;
  const std::string warning = "warning: launch: the program has not read fsdp.yaml, ";
  const size_t found = ended.output.find(warning);
  EXPECT_LT(found, ended.output.find("step 10/10")) << ended.output;
  EXPECT_EQ(ended.output.find(warning, found + 1), std::string::npos);
}

// A rank of ours reads them like its own flags: the table of effective settings shows them.
TEST_F(LaunchConfig, IsWhatOurOwnCommandsRunWith) {
  std::string tokens;
  for (int i = 0; i < 400; ++i) tokens += {'\3', '\0'};
  folder_.write("t.bin", tokens);
  const std::string train =
      "fullshard train --no-save-model --steps 1 --data t.bin --sequence-length 16 --output $0 "
      "--model " FULLSHARD_SOURCE_DIR "/tests/fixtures/models/llama ";
  const auto in_effect = [&](const std::string& output, const std::string& key) {
    const auto record = nlohmann::json::parse(folder_.read(output + "/run.json"), nullptr, false);
    return record.is_object() ? record["configuration"][key]["value"].dump() : "no record";
  };
  folder_.write("fsdp.yaml", kFile);
  const launch::Ended set =
      launch::shell("cd " + folder_.path() +
                    "; export HOME=$PWD OMP_NUM_THREADS=1; fullshard "
                    "launch --ranks 1 --config fsdp.yaml --set "
                    "fsdp_config.fsdp_sharding_strategy=SHARD_GRAD_OP -- sh -c '" +
                    train + "' set");
  EXPECT_EQ(set.status, 0) << set.output;
  EXPECT_THAT(set.output, Not(HasSubstr("has not read")));
  EXPECT_EQ(in_effect("set", "fsdp_config.fsdp_sharding_strategy"), "\"SHARD_GRAD_OP\"");
  const launch::Ended words =
      launch::shell("cd " + folder_.path() +
                    "; export HOME=$PWD OMP_NUM_THREADS=1; fullshard "
                    "launch --ranks 1 --fsdp \"shard_grad_op auto_wrap\" -- sh -c '" +
                    train + "' words");
  EXPECT_EQ(words.status, 0) << words.output;
  EXPECT_THAT(folder_.read("words/run.json"), HasSubstr("shard_grad_op"));
}

TEST_F(LaunchConfig, LeavesWhatFollowsTheProgramAlone) {
  const auto echo = [&](const std::string& words) {
    return launch::shell("cd " + folder_.path() + "; fullshard launch " + words).output;
  };
  EXPECT_EQ(echo("--ranks 1 echo --ranks 7 --fsdp full_shard --set a=b -- --config x"),
            "--ranks 7 --fsdp full_shard --set a=b -- --config x\n");
  EXPECT_EQ(echo("--ranks 1 --fsdp full_shard -- echo --fsdp other"), "--fsdp other\n");
  EXPECT_EQ(echo("--ranks 1 --fsdp full_shard echo --fsdp other"), "--fsdp other\n");
}

TEST_F(LaunchConfig, IsCheckedBeforeAnythingStarts) {
  folder_.write("fsdp.yaml", std::string(kFile) + "  fsdp_offload_parms: true\n");
  const launch::Ended ended = launch("--config fsdp.yaml", "touch started");
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.output, HasSubstr("error: fsdp.yaml:6: fsdp_config.fsdp_offload_parms:"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "started"));
}

TEST_F(LaunchConfig, OfTheQuestionnaireIsTheDefaultAndSaysSo) {
  std::filesystem::create_directories(folder_ / ".config/fullshard");
  const launch::Ended made =
      launch::shell("unset XDG_CONFIG_HOME; cd " + folder_.path() + "; HOME=" + folder_.path() +
                    " fullshard config < /dev/null");
  ASSERT_EQ(made.status, 0) << made.output;
  const launch::Ended ended = launch("", "echo $RANK of $WORLD_SIZE");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("note: using " + folder_.path()));
  EXPECT_THAT(ended.output, HasSubstr("which `fullshard config` wrote\n"));
  EXPECT_THAT(ended.output, HasSubstr("[1] 1 of 2\n"));
}

TEST_F(LaunchConfig, NamesHostsAndThePlaceToMeet) {
  folder_.write("fsdp.yaml",
                "distributed_type: FSDP\nnum_machines: 2\nmachine_rank: 1\nnum_processes: 4\n"
                "main_process_ip: n0\nmain_process_port: 1234\nfsdp_config: {}\n");
  const launch::Ended ended =
      launch("--config fsdp.yaml", "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT");
  EXPECT_THAT(ended.output, HasSubstr("[2] 2 of 4 at n0:1234\n"));
  EXPECT_THAT(ended.output, HasSubstr("[3] 3 of 4 at n0:1234\n"));
}

}  // namespace
}  // namespace fullshard::cli
