// SPDX-License-Identifier: Apache-2.0
// Mistyped words, and what the command tells about itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

std::string refusal(const std::string& words) {
  const launch::Ended ended = launch::shell("fullshard " + words);
  EXPECT_EQ(ended.status, 2) << words;
  return ended.output;
}

TEST(Words, OfOptionsThatAreNotThereGetTheNearest) {
  EXPECT_EQ(refusal("train --stpes 5 --model m --data d"),
            "error: train: no option '--stpes', did you mean '--steps'?; see fullshard train "
            "--help\n");
  // Reported before missing options, and with underscores as they were typed.
  EXPECT_EQ(refusal("train --sequence_lenght=5"),
            "error: train: no option '--sequence_lenght', did you mean '--sequence-length'?; see "
            "fullshard train --help\n");
  EXPECT_EQ(refusal("config explain f.json --rank 2"),
            "error: config explain: no option '--rank', did you mean '--ranks'?; see fullshard "
            "config explain --help\n");
  EXPECT_EQ(refusal("doctor --frobnicate"),
            "error: doctor: no option '--frobnicate'; see fullshard doctor --help\n");
}

TEST(Words, OfOtherProgramsAreKnown) {
  const std::vector<std::pair<std::string, std::string>> words = {
      {"--learning_rate", "--lr"},
      {"--batch-size", "--micro-batch"},
      {"--per_device_train_batch_size", "--micro-batch"},
      {"--gradient_accumulation_steps", "--accumulate"},
      {"--max_grad_norm", "--clip"},
      {"--warmup_steps", "--warmup"}};
  for (const auto& [typed, meant] : words) {
    EXPECT_EQ(refusal("estimate " + typed + " 1"), "error: estimate: no option '" + typed +
                                                       "', did you mean '" + meant +
                                                       "'?; see fullshard estimate --help\n");
  }
  // Names other than the Trainer's, which train takes (trainer_words_test.cc).
  EXPECT_EQ(refusal("train --num_epochs 1"),
            "error: train: no option '--num_epochs', did you mean '--epochs'?; see fullshard train "
            "--help\n");
}

TEST(Words, OfTheTrainerThatAreMisspeltGetTheNearest) {
  for (const std::string typed : {"--learning_rat", "--per_device_train_batch_siz",
                                  "--gradient_accumulation_step", "--per-device-train-batch-siz"}) {
    std::string meant = typed == "--learning_rat"                 ? "--learning_rate"
                        : typed == "--gradient_accumulation_step" ? typed + "s"
                                                                  : "--per_device_train_batch_size";
    EXPECT_EQ(refusal("train " + typed + " 1"), "error: train: no option '" + typed +
                                                    "', did you mean '" + meant +
                                                    "'?; see fullshard train --help\n");
  }
}

TEST(Words, ThatAreNoNumberAreNoNumbers) {
  for (const std::string flag :
       {"--epochs", "--validation-split", "--early-stopping-threshold", "--label-smoothing",
        "--mask-probability", "--init-timeout", "--step-timeout", "--checkpoint-timeout", "--grace",
        "--notice", "--budget"}) {
    EXPECT_EQ(refusal("train --model m --data d " + flag + " nan"),
              "error: " + flag + ": is nan, expected a number\n");
  }
  EXPECT_EQ(refusal("generate --model m --temperature -nan"),
            "error: --temperature: is -nan, expected a number\n");
  EXPECT_EQ(refusal("launch --grace nan -- true"), "error: --grace: is nan, expected a number\n");
}

TEST(Words, MayBeTheTextOfAConfiguration) {
  EXPECT_EQ(refusal("estimate --model llama-15m --deepspeed '{\"stage\": 1}'"),
            "error: JSON:1: stage: unknown key; did you mean 'zero_optimization.stage'?\n"
            "note: --unknown-keys warn lets unknown keys pass, with a warning each\n");
  EXPECT_EQ(
      refusal("estimate --model llama-15m --fsdp shard_grad_op --fsdp_config "
              "'{\"version\": 2, \"reshard_after_forward\": true}'"),
      "error: JSON:1: reshard_after_forward: is true, but --fsdp says shard_grad_op; keep one "
      "of them\n");
}

TEST(Words, ThatNameNoConfigurationAreWrongArguments) {
  EXPECT_EQ(refusal("estimate --model llama-15m --config nowhere.json"),
            "error: nowhere.json: cannot be read (No such file or directory); name an Accelerate "
            "YAML or DeepSpeed JSON\n");
}

TEST(Words, AreReportedInTheOrderTyped) {
  EXPECT_EQ(refusal("train --model m --stpes 5 --data d --lrr 3"),
            "error: train: no option '--stpes', did you mean '--steps'?; see fullshard train "
            "--help\n"
            "error: train: no option '--lrr', did you mean '--lr'?; see fullshard train --help\n");
  EXPECT_EQ(refusal("doctor one two"),
            "error: doctor: 'one' is not expected; see fullshard doctor --help\n"
            "error: doctor: 'two' is not expected; see fullshard doctor --help\n");
}

TEST(Words, OfValuesSayWhatIsExpected) {
  const std::string train = "train --model m --data d ";
  EXPECT_EQ(refusal(train + "--steps 0"), "error: --steps: is 0, expected a number above 0\n");
  EXPECT_EQ(refusal(train + "--steps 1.5"), "error: --steps: is '1.5', expected a whole number\n");
  EXPECT_EQ(refusal(train + "--grace -1"),
            "error: --grace: is -1, expected a number of at least 0\n");
  EXPECT_EQ(refusal(train + "--mask-probability 2"),
            "error: --mask-probability: is 2, expected a number from 0 to 1\n");
  EXPECT_EQ(refusal(train + "--order random"),
            "error: --order: is 'random', expected shuffled or sequential\n");
  EXPECT_EQ(refusal(train + "--lr"), "error: --lr: has no value\n");
  EXPECT_EQ(refusal(train + "--config a --deepspeed b"),
            "error: --config: given together with --deepspeed; keep one of them\n");
  EXPECT_EQ(refusal("train --data d"),
            "error: train: --model is required; see fullshard train --help\n");
}

TEST(Words, GivenTwiceCountAsGivenLast) {
  const auto output = [](const std::string& words) {
    return launch::shell("fullshard " + words).output;
  };
  const std::string estimate =
      "estimate --deepspeed-table --total-params 1000 --largest-layer-params 10 ";
  EXPECT_EQ(output(estimate + "--gpus-per-node 2 --gpus-per-node 4"),
            "note: --gpus-per-node: is given 2 times; the last counts: 4\n" +
                output(estimate + "--gpus-per-node 4"));
  EXPECT_EQ(output("launch --ranks 2 --num_gpus 1 -- sh -c 'echo of $WORLD_SIZE'"),
            "note: --ranks: is given 2 times; the last counts: 1\nof 1\n");
  EXPECT_EQ(output("launch --ranks 1 --num_gpus 1 -- sh -c 'echo of $WORLD_SIZE'"), "of 1\n");
  // The same flag by the Trainer's name and ours.
  EXPECT_THAT(output("estimate --model llama-15m --clip x --clip y"),
              HasSubstr("note: --clip: is given 2 times; the last counts: y\n"));
  EXPECT_THAT(refusal("doctor one two"), HasSubstr("'one' is not expected"));
  EXPECT_THAT(refusal("config check one two"), HasSubstr("'two' is not expected"));
}

TEST(Words, OfAPythonScriptAreLeftOut) {
  EXPECT_EQ(refusal("train examples/pytorch/translation/run_translation.py --do_train"),
            "error: train: 'examples/pytorch/translation/run_translation.py' is not expected: "
            "train is the program itself; leave the script out\n");
}

TEST(Words, LetUnknownKeysPassWhereAskedTo) {
  const std::string text = " '{\"stage\": 1}'";
  EXPECT_EQ(launch::shell("fullshard config check" + text + " --unknown-keys warn").status, 0);
  const std::string estimate =
      "fullshard estimate --deepspeed-table --total-params 9 --largest-layer-params 3 --deepspeed";
  EXPECT_EQ(launch::shell(estimate + text).status, 2);
  const launch::Ended warned = launch::shell(estimate + text + " --unknown_keys=warn");
  EXPECT_EQ(warned.status, 0) << warned.output;
  for (const std::string command : {"launch", "train", "eval", "generate", "estimate", "tune",
                                    "simulate", "compare", "config check", "config explain"}) {
    EXPECT_THAT(launch::shell("fullshard " + command + " --help").output,
                HasSubstr("--unknown-keys"))
        << command;
  }
}

TEST(Version, IsShown) {
  const launch::Ended ended = launch::shell("fullshard --version");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.output, "fullshard " FULLSHARD_VERSION "\n");
}

TEST(Version, TellsWhatItWasBuiltWithWhereItIsVerbose) {
  const launch::Ended ended = launch::shell("fullshard --version --verbose");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.output, launch::shell("fullshard --verbose --version").output);
  EXPECT_THAT(ended.output, StartsWith("fullshard  " FULLSHARD_VERSION "\ncommit     "));
  for (const std::string line :
       {"\ncompiler   ", "\nbuild      ", "\noptions    ", "\nlibtorch   2.", "\nCUDA       ",
        "\nlibraries  fmt ", "\nbackends   shm, gloo"}) {
    EXPECT_THAT(ended.output, ::testing::HasSubstr(line));
  }
}

TEST(Version, IsTheNewestOfTheChangelog) {
  EXPECT_EQ(launch::shell("grep -m 1 '^## ' " FULLSHARD_SOURCE_DIR "/CHANGELOG.md").output,
            "## " FULLSHARD_VERSION "\n");
}

TEST(Help, OfACommandMayBeAskedForFirst) {
  EXPECT_EQ(launch::shell("fullshard help").output, launch::shell("fullshard --help").output);
  EXPECT_EQ(launch::shell("fullshard help train").output,
            launch::shell("fullshard train --help").output);
  EXPECT_EQ(launch::shell("fullshard help config explain").output,
            launch::shell("fullshard config explain --help").output);
  EXPECT_THAT(refusal("help trian"), StartsWith("error: fullshard: no command 'trian', did you "
                                                "mean 'train'?"));
}

TEST(Help, ShowsDefaults) {
  const std::string text = launch::shell("fullshard train --help").output;
  for (const std::string shown :
       {"learning rate; default: 5e-05", "default: AdamW", "default: FULL_SHARD",
        "largest global norm of the gradients; 0: none; default: 1",
        "examples of a rank in one forward; default: 8"}) {
    EXPECT_THAT(text, HasSubstr(shown));
  }
  // As version 2.1 of CLI11 writes them, and as 2.4 does.
  EXPECT_THAT(text, ContainsRegex("--log-every INT:POSITIVE(=1| \\[1\\])"));
  EXPECT_THAT(text, ContainsRegex("--seed UINT(=42| \\[42\\])"));
  for (const std::string command : {"train", "checkpoint inspect", "checkpoint to-fp32"}) {
    EXPECT_THAT(launch::shell("fullshard help " + command).output, Not(HasSubstr("{false}")))
        << command;
  }
}

TEST(Doctor, AnswersInJson) {
  const launch::Ended ended = launch::shell("fullshard doctor --json 2> /dev/null");
  EXPECT_EQ(ended.status, 0);
  const auto found = nlohmann::json::parse(ended.output);
  EXPECT_TRUE(found["ok"].get<bool>());
  std::set<std::string> subjects;
  for (const auto& fact : found["facts"]) {
    EXPECT_EQ(fact.size(), 4u);
    EXPECT_FALSE(fact["found"].get<std::string>().empty());
    EXPECT_THAT(fact["kind"].get<std::string>(), MatchesRegex("ok|note"));
    subjects.insert(fact["subject"]);
  }
  for (const std::string subject : {"cores", "memory", "disk", "GPUs", "libtorch", "backends"}) {
    EXPECT_TRUE(subjects.contains(subject)) << subject;
  }
  EXPECT_EQ(refusal("doctor --json --report run"),
            "error: --report: given together with --json; keep one of them\n");
}

TEST(Report, AnswersInJson) {
  const launch::TemporaryFolder folder;
  folder.write("run.json", R"({"status": "failed", "problem": "rank 1 died", "num_steps": 9,
    "model": {"name": "m", "parameters": 12}, "mesh": {"world": 2, "shards": 2}})");
  folder.write("metrics.jsonl",
               R"({"step":1,"loss":3.5,"lr":0.1,"grad_norm":1.5,"loss_scale":1.0,"tokens":64,)"
               R"("step_s":0.5,"tokens_per_s":128.0,"mfu":null,"device_peak_bytes":0,)"
               R"("host_peak_bytes":7,"comm_s":0.0,"exposed_comm_s":0.0,"skipped":false})"
               "\n"
               R"({"step":2,"loss":"NaN","lr":0.1,"grad_norm":1.5,"loss_scale":1.0,"tokens":64,)"
               R"("step_s":0.5,"tokens_per_s":128.0,"mfu":null,"device_peak_bytes":0,)"
               R"("host_peak_bytes":9,"comm_s":0.0,"exposed_comm_s":0.0,"skipped":false})"
               "\n");
  const launch::Ended ended =
      launch::shell("fullshard report --json " + folder.path() + " 2> /dev/null");
  EXPECT_EQ(ended.status, 0);
  const auto found = nlohmann::json::parse(ended.output);
  EXPECT_EQ(found["folder"], folder.path());
  EXPECT_EQ(found["page"], folder.path() + "/report.html");
  EXPECT_EQ(found["live"], false);
  EXPECT_EQ(found["status"], "failed");
  EXPECT_EQ(found["problem"], "rank 1 died");
  EXPECT_EQ(found["ranks"], 2);
  EXPECT_EQ(found["steps"], 2);
  EXPECT_EQ(found["planned_steps"], 9);
  EXPECT_EQ(found["loss"], "NaN");
  EXPECT_EQ(found["best"], nlohmann::json::parse(R"({"loss": 3.5, "step": 1})"));
  EXPECT_EQ(found["evaluation"], nullptr);
  EXPECT_EQ(found["tokens"], 128);
  EXPECT_EQ(found["tokens_per_s"], 128.0);
  EXPECT_EQ(found["mfu"], nullptr);
  EXPECT_EQ(found["host_peak_bytes"], 9);
  EXPECT_TRUE(std::filesystem::exists(folder / "report.html"));
}

}  // namespace
}  // namespace fullshard::cli
