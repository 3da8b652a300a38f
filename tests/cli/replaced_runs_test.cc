// SPDX-License-Identifier: Apache-2.0
// What a run does with an older run in its folder.
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

TEST_F(ReplacedRuns, FindWhatIsInTheWayOfCheckpointsBeforeTheFirstStep) {
  std::filesystem::create_directory(folder_ / "one");
  folder_.write("one/checkpoints", "mine");
  std::filesystem::create_directories(folder_ / "two/checkpoints/latest");
  for (const auto& [output, message] :
       {std::pair{"one", "one/checkpoints: is not a folder"},
        std::pair{"two", "two/checkpoints/latest: is a folder, but a file of this name"}}) {
    const std::string words = std::string("--steps 3 --output ") + output;
    const launch::Ended ended = train(words + " --save-every 2 --ranks 2");
    EXPECT_EQ(ended.status, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(std::string("error: ") + message));
    EXPECT_FALSE(is_there(std::string(output) + "/metrics.jsonl"));
    EXPECT_EQ(train(words).status, 0);  // nothing is saved
  }
  EXPECT_EQ(folder_.read("one/checkpoints"), "mine");
}

TEST_F(ReplacedRuns, LeaveNothingBehind) {
  const std::string more = "--eval-data held.bin --eval-every 1 --keep-best --report-to all ";
  ASSERT_EQ(train("--steps 2 --save-every 1 --output run " + more).status, 0);
  ASSERT_EQ(std::rename((folder_ / "run/checkpoints/step-000001").c_str(),
                        (folder_ / "run/checkpoints/mine").c_str()),
            0);
  folder_.write("run/notes.txt", "the user's own\n");
  ASSERT_TRUE(is_there("run/best") && is_there("run/csv") && is_there("run/tensorboard"));
  // The older run's best model is not this run's.
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

// A user's file or folder in model/ is not part of the model.
TEST_F(ReplacedRuns, KeepWhatOthersHavePutBesideTheModel) {
  ASSERT_EQ(train("--steps 1 --output run").status, 0);
  std::filesystem::copy_file(folder_ / "t.bin", folder_ / "run/model/mine.bin");
  std::filesystem::create_directory(folder_ / "run/model/runs");
  folder_.write("run/model/runs/notes", "x");
  folder_.write("run/model/model-00001-of-00002.safetensors", "of a larger one");
  std::filesystem::create_directory(folder_ / "run/model.old");
  for (int i = 0; i < 2; ++i) {
    const launch::Ended ended =
        run("train --quiet --data run/model/mine.bin --sequence-length 16 --micro-batch 2 --steps "
            "1 --output run --overwrite --model " +
            kRunModels + "llama");
    ASSERT_EQ(ended.status, 0) << ended.output;
    EXPECT_TRUE(is_there("run/model/mine.bin") && is_there("run/model/runs/notes"));
    EXPECT_TRUE(is_there("run/model/model.safetensors") && is_there("run/model.old"));
    EXPECT_FALSE(is_there("run/model/model-00001-of-00002.safetensors"));
    EXPECT_FALSE(is_there("run/model.part"));
  }
}

// The older run was killed between the two renames.
TEST_F(ReplacedRuns, GiveBackWhatWasJustBeingMoved) {
  std::filesystem::create_directories(folder_ / "run/model.part/runs");
  folder_.write("run/model.part/mine.txt", "x");
  folder_.write("run/model.part/model.safetensors.part", "half");
  ASSERT_EQ(train("--steps 1 --output run").status, 0);
  EXPECT_TRUE(is_there("run/model/mine.txt") && is_there("run/model/runs"));
  EXPECT_TRUE(is_there("run/model/model.safetensors"));
  EXPECT_FALSE(is_there("run/model/model.safetensors.part") || is_there("run/model.part"));
}

TEST_F(ReplacedRuns, LeaveAloneWhatLinksLeadTo) {
  ASSERT_EQ(train("--steps 2 --save-every 2 --output run").status, 0);
  for (const char* name : {"model", "checkpoints/step-000002"}) {
    const std::string there = std::string("run/") + name;
    const auto away = folder_ / ("away-" + std::to_string(std::string(name).size()));
    std::filesystem::rename(folder_ / there, away);
    std::filesystem::create_directory_symlink(away, folder_ / there);
  }
  ASSERT_EQ(train("--steps 2 --save-every 2 --output run --overwrite").status, 0);
  EXPECT_TRUE(is_there("away-5/model.safetensors"));
  EXPECT_TRUE(is_there("away-23/manifest.json"));
  EXPECT_TRUE(is_there("run/model/model.safetensors"));
  EXPECT_TRUE(is_there("run/checkpoints/step-000002/manifest.json"));
}

// As if checkpoints/ were on a larger disk.
TEST_F(ReplacedRuns, AreGoneOnWithBehindALink) {
  std::filesystem::create_directories(folder_ / "run");
  std::filesystem::create_directories(folder_ / "large");
  std::filesystem::create_directory_symlink(folder_ / "large", folder_ / "run/checkpoints");
  ASSERT_EQ(train("--steps 2 --save-every 2 --output run").status, 0);
  ASSERT_EQ(train("--steps 4 --save-every 2 --resume auto --output run").status, 0);
  EXPECT_THAT(steps_in("run"), ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(train("--steps 5 --resume large/step-000004 --output run").status, 0);
  EXPECT_THAT(steps_in("run"), ElementsAre(1, 2, 3, 4, 5));
  std::filesystem::rename(folder_ / "large/step-000004", folder_ / "elsewhere");
  std::filesystem::create_directory_symlink(folder_ / "elsewhere", folder_ / "large/step-000004");
  ASSERT_EQ(train("--steps 5 --resume run/checkpoints/step-000004 --output run").status, 0);
  EXPECT_THAT(steps_in("run"), ElementsAre(1, 2, 3, 4, 5));
}

// The older run's best model is still there, but is not this run's.
TEST_F(ReplacedRuns, BestModelsAreNotThoseOfAnotherFolder) {
  const std::string best =
      "--steps 5 --save-every 3 --eval-data held.bin --eval-every 1 --lr 1e-2 --restore-best ";
  ASSERT_EQ(train(best + "--output one").status, 0);
  const launch::Ended ended = train(best + "--output other --resume one/checkpoints/step-000003");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("warning: --restore-best: other/best does not exist: "
                                      "evaluations before step 4 do not count\n"));
  EXPECT_EQ(folder_.read("other/model/model.safetensors"),
            folder_.read("other/best/model.safetensors"));
}

// A copy of it was interrupted: it is an incomplete checkpoint of ours and no obstacle.
TEST_F(ReplacedRuns, CheckpointsWithoutAManifestAreReplaced) {
  ASSERT_EQ(train("--steps 4 --save-every 2 --output run").status, 0);
  std::filesystem::remove(folder_ / "run/checkpoints/step-000004/manifest.json");
  const launch::Ended ended = train("--steps 5 --save-every 2 --resume auto --output run");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(is_there("run/checkpoints/step-000004/manifest.json"));
  EXPECT_THAT(steps_in("run"), ElementsAre(1, 2, 3, 4, 5));
}

// Otherwise its metrics, checkpoints and best evaluation would mix two runs.
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
  // In its own folder it resumes, by its name too.
  ASSERT_EQ(train("--steps 5 --resume one/checkpoints/step-000004 --output one").status, 0);
  EXPECT_THAT(steps_in("one"), ElementsAre(1, 2, 3, 4, 5));
}

// Examples are identified by their losses: nothing is learnt.
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

TEST_F(ReplacedRuns, KeepEveryFileThatAConfigurationIsMadeOf) {
  const std::string words = "train --quiet --data t.bin --sequence-length 16 --steps 1 --model " +
                            kRunModels + "llama --overwrite --output run ";
  // {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5, …}, as DeepSpeed takes it.
  const std::string text =
      R"({"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 500000, "allgather_bucket_size": 500000}})";
  folder_.write("long.json", text);
  ASSERT_EQ(run(words + "--deepspeed \"$(base64 -w0 long.json)\"").status, 0);
  EXPECT_EQ(folder_.read("run/given_config.json"), text);
  folder_.write("fsdp.txt", R"({"version": 2})");
  ASSERT_EQ(run(words + "--micro-batch 2 --fsdp full_shard --fsdp-config fsdp.txt").status, 0);
  EXPECT_EQ(folder_.read("run/given_config.json"), R"({"version": 2})");
  const std::string yaml =
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: long.json\n";
  folder_.write("accelerate.conf", yaml);
  ASSERT_EQ(run(words + "--config accelerate.conf").status, 0);
  EXPECT_EQ(folder_.read("run/given_config.yaml"), yaml);
  EXPECT_EQ(folder_.read("run/given_config.json"), text);
}

// The finished run stays as it is, without further steps.
TEST_F(ReplacedRuns, ThatStoppedEarlyAreDone) {
  const std::string words =
      "--steps 9 --save-every 1 --eval-data held.bin --eval-every 1 --lr 0 --output run "
      "--early-stopping-patience ";
  ASSERT_EQ(train(words + "2").status, 0);
  EXPECT_THAT(steps_in("run"), ElementsAre(1, 2, 3));
  const launch::Ended ended = train(words + "2 --resume auto");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(steps_in("run"), ElementsAre(1, 2, 3));
  ASSERT_EQ(train(words + "4 --resume auto").status, 0);
  EXPECT_THAT(steps_in("run"), ElementsAre(1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace fullshard::cli
