// `fullshard checkpoint` as a user types it, and `train --resume` from what other programs saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/launch/shell.h"

namespace fullshard {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kFixtures = FULLSHARD_SOURCE_DIR "/tests/fixtures/checkpoints/";
const std::string kResumable = kFixtures + "resumable/";

class CheckpointCommand : public ::testing::Test {
 protected:
  Ended run(const std::string& words) {
    return shell("cd " + folder_.path() + "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" +
                 folder_.path() + " OMP_NUM_THREADS=1; fullshard " + words);
  }
  json run_json(const std::string& words, int status = 0) {
    const Ended ended = run(words + " --json 2> /dev/null");
    EXPECT_EQ(ended.status, status) << words << ended.output;
    return json::parse(ended.output, nullptr, false);
  }

  // As make_resumable.py trains, so that losses can be compared.
  std::string train_words(const std::string& output, int steps) const {
    return "train --quiet --no-save-model --model " + kResumable + "model --data " + kResumable +
           "tokens.bin --order sequential --sequence-length 8 --micro-batch 2 --lr 1e-2 "
           "--adam-beta1 0.9 --adam-beta2 0.999 --adam-epsilon 1e-8 --weight-decay 0 --clip 0 "
           "--schedule constant --output " +
           output + " --steps " + std::to_string(steps) + " ";
  }
  std::vector<double> losses_of(const std::string& output) {
    std::istringstream lines(folder_.read(output + "/metrics.jsonl"));
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);) {
      losses.push_back(json::parse(line)["loss"].get<double>());
    }
    return losses;
  }

  TemporaryFolder folder_;
};

TEST_F(CheckpointCommand, InspectsEveryKind) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"zero1", "DeepSpeed ZeRO-1"},        {"zero2_bf16", "DeepSpeed ZeRO-2"},
      {"zero3", "DeepSpeed ZeRO-3"},        {"dcp", "torch.distributed.checkpoint"},
      {"accelerate", "Accelerate FSDP"},    {"resumable/accelerate_full", "Hugging Face"},
      {"zero1.safetensors", "weights file"}};
  for (const auto& [name, kind] : kinds) {
    const json found = run_json("checkpoint inspect " + kFixtures + name);
    EXPECT_EQ(found["kind"], kind) << name;
    EXPECT_GT(found["parameters"].get<int64_t>(), 90) << name;
  }
  const Ended table = run("checkpoint inspect " + kFixtures + "zero3");
  EXPECT_EQ(table.status, 0);
  EXPECT_THAT(table.output, HasSubstr("zero3/global_step2: DeepSpeed ZeRO-3\n"
                                      "step         2\n"
                                      "ranks        3\n"));
  EXPECT_THAT(table.output,
              HasSubstr("head.weight    F32         140 B  [7, 5]  tied to emb.weight\n"));
}

TEST_F(CheckpointCommand, VerifiesAndNamesWhatIsDamaged) {
  const json whole = run_json("checkpoint verify " + kFixtures + "zero2");
  EXPECT_TRUE(whole["ok"].get<bool>());
  EXPECT_TRUE(whole["checksums"].get<bool>());
  ASSERT_EQ(shell("cp -r " + kFixtures + "zero2 " + folder_.path()).status, 0);
  const std::string file = folder_ / "zero2/global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt";
  ASSERT_EQ(shell("printf X | dd of=" + file + " bs=1 seek=9000 conv=notrunc 2> /dev/null").status,
            0);
  const Ended damaged = run("checkpoint verify zero2");
  EXPECT_EQ(damaged.status, 4) << damaged.output;
  EXPECT_THAT(damaged.output, StartsWith("error: "));
  EXPECT_THAT(damaged.output, HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt"));
  EXPECT_EQ(run("checkpoint verify nowhere").status, 4);
}

TEST_F(CheckpointCommand, FindsDifferences) {
  EXPECT_EQ(run("checkpoint diff " + kFixtures + "zero1 " + kFixtures + "zero3").output,
            "equal: 16 tensors\n");
  const json found = run_json("checkpoint diff " + kFixtures + "zero1 " + kFixtures + "dcp", 1);
  EXPECT_FALSE(found["equal"].get<bool>());
  ASSERT_EQ(found["differences"].size(), 1u);
  EXPECT_EQ(found["differences"][0]["tensor"], "columns");
  EXPECT_EQ(found["differences"][0]["what"], "only in the second");
}

TEST_F(CheckpointCommand, WritesEveryFormAndReadsItAgain) {
  const std::string zero3 = kFixtures + "zero3 ";
  EXPECT_EQ(run("checkpoint to-fp32 " + zero3 + "fp32").output, "fp32/pytorch_model.bin\n");
  EXPECT_EQ(run("checkpoint to-fp32 " + zero3 + "one.safetensors").output, "./one.safetensors\n");
  EXPECT_EQ(run("checkpoint export " + zero3 + "hf").output, "hf/model.safetensors\n");
  EXPECT_EQ(run("checkpoint convert " + zero3 + "ds --to deepspeed").status, 0);
  EXPECT_EQ(run("checkpoint convert " + zero3 + "dcp --to dcp").output, "dcp/model.safetensors\n");
  for (const std::string made : {"fp32", "one.safetensors", "hf", "ds"}) {
    const Ended ended = run("checkpoint diff " + zero3 + made);
    EXPECT_EQ(ended.status, 0) << made << ended.output;
  }
}

TEST_F(CheckpointCommand, RefusesWhatMakesNoSense) {
  EXPECT_EQ(run("checkpoint").status, 2);
  EXPECT_EQ(run("checkpoint explode x").status, 2);
  EXPECT_EQ(run("checkpoint convert a b --to rar").status, 2);
  EXPECT_EQ(run("checkpoint to-fp32 a b --max-shard-size lots").status, 2);
  const Ended tag = run("checkpoint inspect " + kFixtures + "zero2 -t global_step9");
  EXPECT_EQ(tag.status, 4);
  EXPECT_THAT(tag.output, HasSubstr("global_step9: is not there"));
}

// The real programs went on for two steps; we go on from their checkpoints instead.
TEST_F(CheckpointCommand, TrainingGoesOnAsTheOtherProgramDid) {
  const json expected = json::parse(std::ifstream(kResumable + "losses.json"));
  const std::vector<std::tuple<std::string, std::string, std::string>> ways = {
      {"zero1", "zero1", "--ranks 2"},
      {"zero3", "zero3", "--ranks 2 --zero-stage 2"},
      {"dcp", "fsdp", "--ranks 1 --accumulate 2"},
      {"accelerate", "fsdp", "--ranks 2 --strategy SHARD_GRAD_OP"},
      {"accelerate_full", "fsdp", "--ranks 2 --strategy NO_SHARD"}};
  for (const auto& [folder, losses, how] : ways) {
    const Ended ended = run(train_words(folder, 4) + how + " --resume " + kResumable + folder);
    ASSERT_EQ(ended.status, 0) << folder << ended.output;
    EXPECT_THAT(ended.output, Not(HasSubstr("anew"))) << folder;
    const auto found = losses_of(folder);
    ASSERT_EQ(found.size(), 2u) << folder;
    EXPECT_NEAR(found[0], expected[losses][2].get<double>(), 1e-5) << folder;
    EXPECT_NEAR(found[1], expected[losses][3].get<double>(), 1e-5) << folder;
  }
}

TEST_F(CheckpointCommand, StatesWithoutNamesStartAnewAndThatIsSaid) {
  const json expected = json::parse(std::ifstream(kResumable + "losses.json"));
  const Ended ended =
      run(train_words("trainer", 4) + "--ranks 2 --resume " + kResumable + "trainer");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("the optimizer starts anew: it has no optimizer states that "
                                      "can be read by name"));
  const auto found = losses_of("trainer");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[0], expected["fsdp"][2].get<double>(), 1e-5);
}

// What one's own run saved: on demand under a name, and turned into other programs' forms.
TEST_F(CheckpointCommand, AsksARunForACheckpointAndExportsItForHuggingFace) {
  const std::string gpt2 = FULLSHARD_SOURCE_DIR "/tests/fixtures/models/gpt2";
  const std::string words = "train --quiet --model " + gpt2 + " --data " + kResumable +
                            "tokens.bin --sequence-length 8 --micro-batch 2 --output run ";
  ASSERT_EQ(run(words + "--ranks 1 --steps 1 --no-save-model").status, 0);
  EXPECT_EQ(run("checkpoint save run before").status, 0);
  EXPECT_EQ(folder_.read("run/checkpoints/request"), "before");
  ASSERT_EQ(run(words + "--ranks 2 --steps 1 --overwrite").status, 0);
  EXPECT_EQ(folder_.read("run/checkpoints/latest"), "before\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/checkpoints/request"));
  // GPT-2's files hold its matrices the other way round.
  ASSERT_EQ(run("checkpoint export run out").output, "out/model.safetensors\nout/config.json\n");
  EXPECT_EQ(run("checkpoint diff out run/model").status, 0);
  EXPECT_EQ(folder_.read("out/config.json"), folder_.read("run/model/config.json"));
  EXPECT_EQ(run("checkpoint diff run run/model").status, 0);
  EXPECT_EQ(run("checkpoint save run ../away").status, 2);
  EXPECT_EQ(run("checkpoint save nowhere name").status, 4);
}

// Room for a checkpoint or two.
TEST_F(CheckpointCommand, AFullDiskLeavesTheCheckpointBefore) {
  const Ended probe = shell("unshare -rm mount -t tmpfs -o size=200k none /mnt");
  if (probe.status != 0) GTEST_SKIP() << "no small disk can be made here: " << probe.output;
  const Ended ended = shell(
      "cd " + folder_.path() + "; export HOME=$PWD OMP_NUM_THREADS=1; mkdir -p run/checkpoints; " +
      "unshare -rm bash -c 'mount -t tmpfs -o size=200k none run/checkpoints; fullshard " +
      train_words("run", 9) +
      "--ranks 2 --save-every 3; echo status $?; fullshard checkpoint verify run'");
  EXPECT_EQ(ended.status, 0) << ended.output;  // of verify
  EXPECT_THAT(ended.output, HasSubstr(".part/"));
  EXPECT_THAT(ended.output, HasSubstr("No space left on device"));
  EXPECT_THAT(ended.output, HasSubstr("status 4"));
  EXPECT_THAT(ended.output, HasSubstr(": whole: "));
}

}  // namespace
}  // namespace fullshard
