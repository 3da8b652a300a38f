// SPDX-License-Identifier: Apache-2.0
// What a run does with the one that lies in its folder.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/cli/short_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ReplacedRuns : public ShortRuns {
 protected:
  ReplacedRuns() {
    write_tokens("t.bin", 2000);
    write_tokens("held.bin", 300);
  }

  launch::Ended train(const std::string& words, int micro_batch = 2) {
    return run("train --quiet --data t.bin --sequence-length 16 --micro-batch " +
               std::to_string(micro_batch) + " --model " + kRunModels + "llama " + words);
  }
  bool is_there(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
  std::vector<int> steps_in(const std::string& output) {
    std::vector<int> steps;
    for (const auto& record : metrics(output)) steps.push_back(record["step"]);
    return steps;
  }
};

TEST_F(ReplacedRuns, StayUntilTheNewOneCanBegin) {
  ASSERT_EQ(train("--steps 4 --save-every 2 --output run").status, 0);
  const std::string record = folder_.read("run/run.json");
  for (const auto& [words, status] : {std::pair{"--data nothing.bin", 4},
                                      {"--wrap NoSuchLayer", 2},
                                      {"--task masked-lm", 2},
                                      {"--eval-data nothing.bin", 4},
                                      {"--sequence-length 4096", 2},
                                      {"--offload all:/nowhere/at/all --zero-stage 3", 4}}) {
    const std::string name = words;
    const std::string data = name.starts_with("--data") ? "" : "--data t.bin ";
    const launch::Ended ended =
        run("train --quiet --micro-batch 2 --steps 4 --output run --overwrite " + data +
            "--model " + kRunModels + "llama " +
            (name.starts_with("--sequence") ? "" : "--sequence-length 16 ") + name);
    EXPECT_EQ(ended.status, status) << words << ended.output;
    EXPECT_EQ(folder_.read("run/run.json"), record) << words;
    EXPECT_TRUE(is_there("run/checkpoints/step-000002")) << words;
    EXPECT_TRUE(is_there("run/model/model.safetensors")) << words;
    EXPECT_THAT(steps_in("run"), ElementsAre(1, 2, 3, 4)) << words;
  }
}

TEST_F(ReplacedRuns, LeaveNothingBehind) {
  const std::string more = "--eval-data held.bin --eval-every 1 --keep-best --report-to all ";
  ASSERT_EQ(train("--steps 2 --save-every 1 --output run " + more).status, 0);
  ASSERT_EQ(std::rename((folder_ / "run/checkpoints/step-000001").c_str(),
                        (folder_ / "run/checkpoints/mine").c_str()),
            0);
  folder_.write("run/notes.txt", "the user's own\n");
  ASSERT_TRUE(is_there("run/best") && is_there("run/csv") && is_there("run/tensorboard"));
  // The best of the run before is not this one's.
  const launch::Ended ended =
      train("--steps 1 --seed 9 --overwrite --restore-best --output run --no-save-model");
  ASSERT_EQ(ended.status, 0) << ended.output;
  for (const char* name : {"best", "csv", "tensorboard", "model", "checkpoints/mine",
                           "checkpoints/step-000002", "checkpoints/latest", "run.replaced"}) {
    EXPECT_FALSE(is_there(std::string("run/") + name)) << name;
  }
  EXPECT_TRUE(is_there("run/notes.txt"));
  EXPECT_THAT(steps_in("run"), ElementsAre(1));
}

TEST_F(ReplacedRuns, KeepWhatTheNewOneReads) {
  ASSERT_EQ(train("--steps 2 --save-every 2 --output run").status, 0);
  const launch::Ended ended =
      run("train --quiet --data t.bin --sequence-length 16 --micro-batch 2 --steps 1 --output run "
          "--overwrite --no-save-model --model run/model");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(is_there("run/model/model.safetensors"));
  EXPECT_FALSE(is_there("run/checkpoints/step-000002"));
}

// Otherwise its metrics, checkpoints and best evaluation would be those of two runs.
TEST_F(ReplacedRuns, AreNotGoneOnWithFromACheckpointOfAnotherFolder) {
  ASSERT_EQ(train("--steps 4 --save-every 4 --output one").status, 0);
  ASSERT_EQ(train("--steps 3 --save-every 1 --output other").status, 0);
  const std::string resume = "--steps 6 --resume one/checkpoints/step-000004 --output other ";
  const launch::Ended refused = train(resume);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("error: other: holds a run already; choose another"));
  EXPECT_THAT(steps_in("other"), ElementsAre(1, 2, 3));
  ASSERT_EQ(train(resume + "--overwrite").status, 0);
  EXPECT_THAT(steps_in("other"), ElementsAre(5, 6));
  EXPECT_FALSE(is_there("other/checkpoints/step-000003"));
  EXPECT_TRUE(is_there("one/checkpoints/step-000004"));
  // In its own folder it goes on, by its name too.
  ASSERT_EQ(train("--steps 5 --resume one/checkpoints/step-000004 --output one").status, 0);
  EXPECT_THAT(steps_in("one"), ElementsAre(1, 2, 3, 4, 5));
}

// Examples are told by their losses: nothing is learnt.
TEST_F(ReplacedRuns, GoOnAtTheSameExampleWithStepsOfAnotherSize) {
  const std::string still = "--lr 0 --order sequential --no-save-model ";
  ASSERT_EQ(train(still + "--steps 40 --output each", 1).status, 0);
  std::vector<double> losses;
  for (const auto& record : metrics("each")) losses.push_back(record["loss"]);
  ASSERT_EQ(train(still + "--ranks 2 --steps 5 --save-every 5 --output run").status, 0);
  for (const auto& [words, size] :
       {std::pair{"--ranks 3", 6}, {"--ranks 1", 2}, {"--ranks 2", 4}}) {
    const launch::Ended ended = train(still + words +
                                      " --steps 7 --resume run/checkpoints/step-000005 --overwrite "
                                      "--output again");
    ASSERT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, Not(HasSubstr("warning"))) << words;
    const auto found = metrics("again");
    ASSERT_EQ(found.size(), 2u) << words;
    for (size_t step = 0; step < 2; ++step) {
      double expected = 0;
      for (int i = 0; i < size; ++i) expected += losses.at(20 + step * size + i) / size;
      EXPECT_NEAR(found[step]["loss"].get<double>(), expected, 1e-4) << words << " step " << step;
    }
  }
}

TEST_F(ReplacedRuns, AreResumedWithAWordWhereTheDataIsAnother) {
  ASSERT_EQ(train("--steps 2 --save-every 2 --output run").status, 0);
  const launch::Ended ended = train("--steps 3 --seed 9 --resume auto --output run");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("warning: --seed: is 9, but the 2 steps before were trained "
                                      "with 42; from here on other examples come"));
  const launch::Ended done = train("--steps 1 --resume auto --output run");
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(
      done.output,
      HasSubstr("error: --steps: is 1, but run/checkpoints/step-000002 was saved after step "
                "2"));
}

TEST_F(ReplacedRuns, GiveADoctorTheConfigurationAsItWasWritten) {
  folder_.write("mine.json", "{\"train_micro_batch_size_per_gpu\": 2, // of mine\n}");
  ASSERT_EQ(run("train --quiet --data t.bin --sequence-length 16 --steps 1 --config mine.json "
                "--output run --model " +
                kRunModels + "llama")
                .status,
            0);
  EXPECT_THAT(
      run("doctor --report run").output,
      HasSubstr("==== given_config.json ====\n{\"train_micro_batch_size_per_gpu\": 2, // of "
                "mine\n}"));
}

}  // namespace
}  // namespace fullshard::cli
