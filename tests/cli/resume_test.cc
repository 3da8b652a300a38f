// SPDX-License-Identifier: Apache-2.0
// `fullshard train --resume`: from our own checkpoints and from those of other programs.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>
#include <tuple>

#include "tests/cli/checkpoint_runs.h"

namespace fullshard::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Resume : public CheckpointRuns {};

// The original programs continued for two steps; here we continue from their checkpoints.
TEST_F(Resume, TrainingGoesOnAsTheOtherProgramDid) {
  const json expected = json::parse(std::ifstream(kResumable + "losses.json"));
  const std::vector<std::tuple<std::string, std::string, std::string>> ways = {
      {"zero1", "zero1", "--ranks 2"},
      {"zero2", "zero2", "--ranks 2 --zero-stage 3"},
      {"zero3", "zero3", "--ranks 2 --zero-stage 2"},
      {"dcp", "fsdp", "--ranks 1 --accumulate 2"},
      {"accelerate", "fsdp", "--ranks 2 --strategy SHARD_GRAD_OP"},
      {"accelerate_full", "fsdp", "--ranks 2 --strategy NO_SHARD"},
      // Numbered parameters: one group, two by decay, and two with names.
      {"accelerate_state", "accelerate_state", "--ranks 2"},
      {"trainer", "trainer", "--ranks 2"},
      {"named", "named", "--ranks 1 --accumulate 2"}};
  for (const auto& [folder, losses, how] : ways) {
    const std::string rates = folder == "trainer" ? kWarmup : kConstant;
    const launch::Ended ended =
        run(train_words(folder, 4, rates) + how + " --resume " + kResumable + folder);
    ASSERT_EQ(ended.status, 0) << folder << ended.output;
    EXPECT_THAT(ended.output, Not(HasSubstr("anew"))) << folder;
    const auto found = losses_of(folder);
    ASSERT_EQ(found.size(), 2u) << folder;
    EXPECT_NEAR(found[0], expected[losses][2].get<double>(), 1e-5) << folder;
    EXPECT_NEAR(found[1], expected[losses][3].get<double>(), 1e-5) << folder;
  }
}

// With another number of steps the schedule would differ, and so would the losses.
TEST_F(Resume, LossScaleAndScheduleGoOnAsDeepSpeedsDid) {
  const json expected = json::parse(std::ifstream(kResumable + "losses.json"));
  folder_.write("fp16.json", R"({"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0,
    "zero_optimization": {"stage": 2},
    "fp16": {"enabled": true, "initial_scale_power": 10, "loss_scale_window": 2, "hysteresis": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8,
                                              "weight_decay": 0.0}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-2,
      "warmup_num_steps": 3, "warmup_type": "linear", "total_num_steps": 20}}})");
  for (const std::string folder : {"zero2_fp16", "zero3_fp16"}) {
    const launch::Ended ended =
        run("train --quiet --no-save-model --model " + kResumable + "model --data " + kResumable +
            "tokens.bin --order sequential --sequence-length 8 --config fp16.json --ranks 2 "
            "--steps 9 --output " +
            folder + " --resume " + kResumable + folder);
    ASSERT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, Not(HasSubstr("anew")));
    std::istringstream lines(folder_.read(folder + "/metrics.jsonl"));
    size_t step = 0;
    for (std::string line; std::getline(lines, line); ++step) {
      const json found = json::parse(line);
      SCOPED_TRACE(line);
      EXPECT_NEAR(found["loss"].get<double>(), expected[folder]["loss"][step].get<double>(), 3e-3);
      EXPECT_NEAR(found["lr"].get<double>(), expected[folder]["lr"][step].get<double>(), 1e-12);
      EXPECT_EQ(found["loss_scale"], expected[folder]["loss_scale"][step]);
      EXPECT_EQ(found["skipped"], expected[folder]["skipped"][step]);
    }
    EXPECT_EQ(step, 4u);
  }
}

TEST_F(Resume, ALossScaleThatHasNoPlaceIsSaid) {
  const launch::Ended left = run(train_words("left", 6) + "--ranks 1 --accumulate 2 --resume " +
                                 kResumable + "zero2_fp16");
  ASSERT_EQ(left.status, 0) << left.output;
  EXPECT_THAT(left.output, HasSubstr("its loss scale 131072 is left: that of this run is fixed at "
                                     "1\n"));
  const launch::Ended anew = run(train_words("anew", 3) +
                                 "--ranks 1 --accumulate 2 --precision fp16 "
                                 "--resume " +
                                 kResumable + "zero2");
  ASSERT_EQ(anew.status, 0) << anew.output;
  EXPECT_THAT(anew.output, HasSubstr("the loss scale starts anew at 65536: it has none that "
                                     "changes\n"));
}

TEST_F(Resume, NumbersThatDoNotFitStartAnewAndThatIsSaid) {
  ASSERT_EQ(launch::shell("cp -r " + kResumable + "trainer " + folder_.path() + "; cp " +
                          kResumable + "three_groups/optimizer.pt " + folder_ / "trainer/")
                .status,
            0);
  const launch::Ended ended = run(train_words("run", 3) + "--ranks 2 --resume trainer");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("the optimizer starts anew: it numbers its parameters in "
                                      "groups of 4 and 4 and 3, and which is which is known only "
                                      "of one group, or of two by weight decay\n"));
}

// Training uses other words than the evaluation, so the first result stays the best.
TEST_F(Resume, TheBestCheckpointOutlivesOthersAndResuming) {
  std::string other;
  for (int i = 0; i < 200; ++i) other += {static_cast<char>(20 + i % 13), '\0'};
  folder_.write("other.bin", other);
  const std::string words =
      "--ranks 2 --save-every 2 --eval-every 2 --keep 1 --eval-data other.bin ";
  const auto checkpoints = [&] {
    return launch::shell("ls " + folder_ / "run/checkpoints").output;
  };
  // A rate so high that it forgets the other words within a few steps.
  const std::string fast = "--lr 5e-2 --schedule constant ";
  const launch::Ended first = run(train_words("run", 8, fast) + words + "--keep-best");
  ASSERT_EQ(first.status, 0) << first.output;
  EXPECT_EQ(checkpoints(), "latest\nstep-000002\nstep-000008\n");
  EXPECT_EQ(run("checkpoint diff run/checkpoints/step-000002 run/best").status, 0);
  EXPECT_EQ(run("checkpoint diff run/checkpoints/step-000008 run/best").status, 1);

  const launch::Ended second =
      run(train_words("run", 12, fast) + words + "--restore-best --resume auto");
  ASSERT_EQ(second.status, 0) << second.output;
  EXPECT_EQ(checkpoints(), "latest\nstep-000002\nstep-000012\n");
  EXPECT_EQ(folder_.read("run/checkpoints/latest"), "step-000012\n");
  EXPECT_EQ(run("checkpoint diff run/checkpoints/step-000002 run/best").status, 0);
  EXPECT_EQ(run("checkpoint diff run/model run/best").status, 0);
  // The best one is complete: another run resumes from it.
  const launch::Ended third =
      run(train_words("third", 4, fast) + "--ranks 1 --accumulate 2 --resume " +
          "run/checkpoints/step-000002");
  ASSERT_EQ(third.status, 0) << third.output;
  const auto again = losses_of("third"), before = losses_of("run");
  ASSERT_EQ(again.size(), 2u);
  EXPECT_NEAR(again[0], before[2], 1e-5);
  EXPECT_NEAR(again[1], before[3], 1e-5);
}

TEST_F(Resume, ResumeAutoSaysWhichItSkippedAndWhy) {
  const std::string words = "--ranks 1 --accumulate 2 --save-every 1 ";
  ASSERT_EQ(run(train_words("run", 2) + words).status, 0);
  const std::string file = "run/checkpoints/step-000002/weights-00000.bin";
  ASSERT_EQ(launch::shell("truncate -s 10 " + folder_ / file + "; mkdir " +
                          folder_ / "run/checkpoints/step-000003.part")
                .status,
            0);
  const launch::Ended ended = run(train_words("run", 3) + words + "--resume auto");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("warning: checkpoint skipped: step-000003.part: was never "
                                      "finished\n"));
  EXPECT_THAT(ended.output, HasSubstr("warning: checkpoint skipped: step-000002: " + file +
                                      ": has 10 bytes, the checkpoint's manifest says "));
  EXPECT_EQ(losses_of("run").size(), 3u);  // from step 1 on, again
}

// Bit rot: only reading the file reveals it.
TEST_F(Resume, AutoTakesAnOlderOneWhereTheNewestIsDamaged) {
  const std::string save = "--ranks 2 --save-every 2 ";
  ASSERT_EQ(run(train_words("whole", 8) + save).status, 0);
  const auto damage = [&](const std::string& file) {
    std::string bytes = folder_.read(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    folder_.write(file, bytes);
  };
  ASSERT_EQ(run(train_words("run", 6) + save).status, 0);
  damage("run/checkpoints/step-000006/weights-00001.bin");
  damage("run/checkpoints/step-000004/exp_avg-00000.bin");
  const launch::Ended ended = run(train_words("run", 8) + save + "--resume auto");
  ASSERT_EQ(ended.status, 0) << ended.output;
  for (const std::string step : {"6/weights-00001.bin", "4/exp_avg-00000.bin"}) {
    EXPECT_THAT(ended.output, HasSubstr("/step-00000" + step + ": bytes 0 to "));
  }
  EXPECT_THAT(ended.output, HasSubstr("warning: checkpoint skipped: step-000006: "));
  EXPECT_THAT(ended.output, HasSubstr("; resuming from run/checkpoints/step-000004 instead\n"));
  EXPECT_THAT(ended.output, HasSubstr("; resuming from run/checkpoints/step-000002 instead\n"));
  EXPECT_EQ(losses_of("run"), losses_of("whole"));
  // A named one has no substitute, and without an older one there is none to use.
  damage("run/checkpoints/step-000008/weights-00000.bin");
  const std::string more = train_words("run", 10) + save;
  EXPECT_EQ(run(more + "--resume run/checkpoints/step-000008").status, 4);
  for (const std::string step : {"2", "4", "6"}) {
    std::filesystem::remove_all(folder_ / "run/checkpoints/step-00000" + step);
  }
  const launch::Ended refused = run(more + "--resume auto");
  EXPECT_EQ(refused.status, 4);
  EXPECT_THAT(refused.output, HasSubstr("step-000008/weights-00000.bin: bytes 0 to "));
}

// Their base is not in the checkpoint and is read again.
TEST_F(Resume, AutoTakesAnOlderAdapterWhereTheNewestIsDamaged) {
  const std::string save = "--ranks 2 --save-every 2 --lora-rank 2 ";
  ASSERT_EQ(run(train_words("whole", 6) + save).status, 0);
  ASSERT_EQ(run(train_words("run", 4) + save).status, 0);
  const std::string file = "run/checkpoints/step-000004/weights-00000.bin";
  std::string bytes = folder_.read(file);
  bytes[4] = static_cast<char>(bytes[4] ^ 1);
  folder_.write(file, bytes);
  const launch::Ended ended = run(train_words("run", 6) + save + "--resume auto");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("; resuming from run/checkpoints/step-000002 instead\n"));
  EXPECT_EQ(losses_of("run"), losses_of("whole"));
}

}  // namespace
}  // namespace fullshard::cli
