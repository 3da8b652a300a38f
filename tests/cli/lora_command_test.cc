// SPDX-License-Identifier: Apache-2.0
// LoRA as a user types it: train, continue, evaluate, generate, compare with PEFT, merge.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kLoraFixtures = FULLSHARD_SOURCE_DIR "/tests/fixtures/lora/";
const std::string kLoraBases = FULLSHARD_SOURCE_DIR "/tests/fixtures/models/";

class LoraRuns : public ::testing::Test {
 protected:
  LoraRuns() {
    std::string bytes;
    for (int i = 0; i < 2000; ++i) {
      bytes += static_cast<char>(3 + i * i % 7);
      bytes += '\0';
    }
    folder_.write("tokens.bin", bytes);
  }

  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard " + words);
  }

  std::string train(const std::string& more) {
    const auto ended = run(
        "train --data tokens.bin --sequence-length 16 --micro-batch 2 --lr 1e-2 --quiet " + more);
    EXPECT_EQ(ended.status, 0) << ended.output;
    return ended.output;
  }

  double eval_loss(const std::string& words) {
    const auto ended =
        run("eval --data tokens.bin --sequence-length 16 --json " + words + " 2> /dev/null");
    EXPECT_EQ(ended.status, 0) << ended.output;
    return nlohmann::json::parse(ended.output)["loss"].get<double>();
  }

  std::string adapter(const std::string& run) {
    return folder_.read(run + "/adapter/adapter_model.safetensors");
  }

  launch::TemporaryFolder folder_;
  const std::string llama_ = " --model " + kLoraBases + "llama ";
};

TEST_F(LoraRuns, LearnAndLeaveWhatPeftReads) {
  train(llama_ +
        "--ranks 2 --steps 8 --lora-rank 4 --lora-alpha 16 --lora-targets all-linear "
        "--save-every 4 --output run");
  const auto config = nlohmann::json::parse(folder_.read("run/adapter/adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 16);
  EXPECT_EQ(config["target_modules"], "all-linear");
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
  EXPECT_EQ(config["base_model_name_or_path"], kLoraBases + "llama");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/model"));

  const double before = eval_loss(llama_);
  const double after = eval_loss(llama_ + "--adapter run/adapter");
  EXPECT_LT(after, before - 0.3);
  EXPECT_NEAR(eval_loss(llama_ + "--adapter run/adapter --ranks 2 --zero-stage 3"), after, 1e-6);
  EXPECT_NEAR(eval_loss(llama_ + "--adapter run/adapter --base-precision int8"), after, 0.05);

  // Merged, it is a model like any other.
  const auto merged = run("checkpoint merge-lora" + llama_ + "--adapter run/adapter -o merged");
  EXPECT_EQ(merged.status, 0) << merged.output;
  EXPECT_NEAR(eval_loss("--model merged"), after, 1e-5);

  // A checkpoint holds what was trained, and becomes the same folder.
  const auto table = run("checkpoint inspect run/checkpoints");
  EXPECT_THAT(table.output, AllOf(HasSubstr("q_proj.lora_A.weight"), HasSubstr("exp_avg"),
                                  Not(HasSubstr("embed_tokens"))));
  EXPECT_EQ(run("checkpoint export run/checkpoints exported").status, 0);
  EXPECT_NEAR(eval_loss(llama_ + "--adapter exported"), after, 1e-6);
}

TEST_F(LoraRuns, GoOnToTheBitAlsoOnOtherRanks) {
  const std::string flags = llama_ + "--lora-rank 2 --save-every 3 ";
  train(flags + "--ranks 2 --steps 6 --output whole");
  train(flags + "--ranks 2 --steps 6 --output parts");
  std::filesystem::remove_all(folder_ / "parts/checkpoints/step-000006");
  std::filesystem::remove_all(folder_ / "parts/adapter");
  folder_.write("parts/checkpoints/latest", "step-000003");
  train(flags + "--ranks 2 --steps 6 --output parts --resume auto");
  EXPECT_TRUE(adapter("parts") == adapter("whole"));
  EXPECT_FALSE(adapter("whole").empty());
  const auto other =
      run("train --data tokens.bin --sequence-length 16 --micro-batch 4 --lr 1e-2 "
          "--steps 6 --output other --resume parts/checkpoints/step-000003" +
          flags);
  EXPECT_EQ(other.status, 0) << other.output;
  EXPECT_THAT(other.output, HasSubstr("resumed after step 3"));
  // With another alpha, training would continue as another adapter.
  const auto stronger =
      run("train --data tokens.bin --sequence-length 16 --micro-batch 4 --steps 6 "
          "--output third --resume parts/checkpoints/step-000003 --lora-alpha 64" +
          flags);
  EXPECT_EQ(stronger.status, 2);
  EXPECT_THAT(stronger.output,
              HasSubstr("error: --lora-alpha: is 64, but parts/checkpoints/step-000003 was trained "
                        "with 8; give the same, or begin anew from its adapter with --adapter"));
}

TEST_F(LoraRuns, GoOnFromAnAdapter) {
  train(llama_ + "--steps 4 --lora-rank 2 --output first");
  const auto ended =
      run("train --data tokens.bin --sequence-length 16 --micro-batch 2 --lr 1e-30 "
          "--steps 1 --adapter first/adapter --output second" +
          llama_);
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_FALSE(adapter("first").empty());
  EXPECT_TRUE(adapter("second") == adapter("first"));
  // As PEFT wrote it, with separate ranks for some layers.
  train(llama_ + "--steps 2 --output third --adapter " + kLoraFixtures + "llama_patterns");
  const auto config = nlohmann::json::parse(folder_.read("third/adapter/adapter_config.json"));
  EXPECT_EQ(config["rank_pattern"],
            (nlohmann::json{{"k_proj", 3}, {"layers.1.self_attn.q_proj", 1}}));
  EXPECT_LT(eval_loss(llama_ + "--adapter third/adapter"), eval_loss(llama_));
}

TEST_F(LoraRuns, FindAdaptersInTheHuggingFaceCache) {
  const std::string hash = "0123456789012345678901234567890123456789";
  const std::string cached = folder_ / "hf/hub/models--me--tiny-lora";
  std::filesystem::create_directories(cached + "/refs");
  std::ofstream(cached + "/refs/main") << hash;
  std::filesystem::create_directories(cached + "/snapshots");
  std::filesystem::copy(kLoraFixtures + "llama", cached + "/snapshots/" + hash);
  const std::string folder = llama_ + "--adapter " + kLoraFixtures + "llama";
  const auto ended = launch::shell("cd " + folder_.path() + "; export HF_HOME=$PWD/hf; fullshard " +
                                   "eval --data tokens.bin --sequence-length 16 --json" + llama_ +
                                   "--adapter me/tiny-lora 2> /dev/null");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(nlohmann::json::parse(ended.output)["loss"].get<double>(), eval_loss(folder));
}

TEST_F(LoraRuns, TrainInSixteenBitsAndOverABaseInEight) {
  for (const std::string more : {"--precision bf16", "--base-precision int8",
                                 "--precision bf16 --base-precision int8 --recompute"}) {
    SCOPED_TRACE(more);
    train(llama_ +
          "--ranks 2 --steps 8 --lora-rank 4 --lora-alpha 16 --lora-targets "
          "all-linear --overwrite --output run " +
          more);
    EXPECT_LT(eval_loss(llama_ + "--adapter run/adapter"), eval_loss(llama_) - 0.3);
    const auto record = nlohmann::json::parse(folder_.read("run/run.json"));
    EXPECT_EQ(record["status"], "done");
  }
}

// Whatever is recomputed, and however fast the machine was before the first step.
TEST_F(LoraRuns, DropAlikeInEveryRun) {
  const std::string flags = llama_ + "--ranks 2 --steps 3 --lora-rank 2 --lora-dropout 0.3 ";
  train(flags + "--output first");
  train(flags + "--output again");
  train(flags + "--output recomputed --recompute");
  train(llama_ + "--ranks 2 --steps 3 --lora-rank 2 --output without");
  EXPECT_FALSE(adapter("first").empty());
  EXPECT_TRUE(adapter("first") == adapter("again"));
  EXPECT_TRUE(adapter("first") == adapter("recomputed"));
  EXPECT_FALSE(adapter("first") == adapter("without"));
}

TEST_F(LoraRuns, GenerateWithTheAdapter) {
  train(llama_ + "--steps 30 --lora-rank 8 --lora-alpha 32 --lora-targets all-linear --output run");
  run("checkpoint merge-lora" + llama_ + "--adapter run/adapter -o merged");
  folder_.write("prompts.jsonl", "{\"tokens\": [3, 4, 7, 5, 5, 7, 4, 3]}\n");
  const std::string words = "generate --prompts prompts.jsonl --greedy --max-new-tokens 12 ";
  const auto tokens = [&](const std::string& model) {
    const auto ended = run(words + model + " 2> /dev/null");
    EXPECT_EQ(ended.status, 0) << ended.output;
    return nlohmann::json::parse(ended.output)["tokens"];
  };
  const auto adapted = tokens(llama_ + "--adapter run/adapter");
  EXPECT_EQ(adapted, tokens("--model merged"));
  EXPECT_NE(adapted, tokens(llama_));
}

// On a base that is not a classifier: its head is trained with the adapter and saved next to it.
TEST_F(LoraRuns, ClassifiersTrainTheirHeadAsWell) {
  std::filesystem::create_directories(folder_ / "words");
  folder_.write("words/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\n");
  std::string rows;
  for (int i = 0; i < 40; ++i) {
    rows += fmt::format("{{\"text\": \"{} e\", \"label\": \"{}\"}}\n",
                        static_cast<char>('a' + i % 4), i % 4 < 2 ? "low" : "high");
  }
  folder_.write("rows.jsonl", rows);
  const std::string words = "--model " + kLoraBases +
                            "bert --data rows.jsonl --tokenizer words "
                            "--sequence-length 8 --micro-batch 4 ";
  const auto ended =
      run("train --task classification --steps 100 --lora-rank 4 --lr 0.005 "
          "--output run " +
          words);
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto config = nlohmann::json::parse(folder_.read("run/adapter/adapter_config.json"));
  EXPECT_EQ(config["task_type"], "SEQ_CLS");
  EXPECT_THAT(config["modules_to_save"].dump(), HasSubstr("\"classifier\""));
  const auto evaluated = run("eval --adapter run/adapter --json " + words + " 2> /dev/null");
  ASSERT_EQ(evaluated.status, 0) << evaluated.output;
  EXPECT_EQ(nlohmann::json::parse(evaluated.output)["accuracy"], 1.0);
}

TEST_F(LoraRuns, EstimateWhatTheyHold) {
  const auto held = [&](const std::string& more) {
    const auto ended =
        run("estimate --model llama-110m --json --micro-batch 1 --sequence-length "
            "16 --device cpu --precision bf16 " +
            more + " 2> /dev/null");
    EXPECT_EQ(ended.status, 0) << ended.output;
    return nlohmann::json::parse(ended.output)["device"]["rest_bytes"].get<double>();
  };
  const double whole = held(""), adapted = held("--lora-rank 8");
  // fp32 masters, two moments and bf16 parameters, of which the last are left.
  EXPECT_NEAR(adapted, whole / 8, 0.05 * whole);
  EXPECT_LT(held("--lora-rank 8 --base-precision int8"), 0.75 * adapted);
}

TEST_F(LoraRuns, SayWhatCannotBe) {
  const auto refusal = [&](const std::string& words) {
    const auto ended = run("train --data tokens.bin --output bad " + words);
    EXPECT_NE(ended.status, 0);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "bad/run.json")) << words;
    return fmt::format("{} {}", ended.status, ended.output);
  };
  EXPECT_THAT(refusal(llama_ + "--lora-rank 0"), HasSubstr("2 "));
  EXPECT_THAT(refusal(llama_ + "--lora-rank 2 --lora-targets q_prj"),
              AllOf(HasSubstr("2 "), HasSubstr("no module is called 'q_prj'; there are q_proj")));
  EXPECT_THAT(refusal(llama_ + "--lora-rank 2 --lora-alpha 0"),
              HasSubstr("--lora-alpha: is 0, expected a number above 0"));
  EXPECT_THAT(refusal(llama_ + "--lora-alpha 2"), HasSubstr("without effect; give --lora-rank"));
  EXPECT_THAT(refusal(llama_ + "--base-precision int8"),
              HasSubstr("give --lora-rank or --adapter"));
  EXPECT_THAT(refusal(llama_ + "--adapter x --lora-rank 2"), HasSubstr("leave out --lora-rank"));
  EXPECT_THAT(refusal(llama_ + "--adapter nowhere"), HasSubstr("has no adapter_config.json"));
  EXPECT_THAT(refusal("--model " + kLoraBases +
                      "llama_tied --lora-rank 2 "
                      "--lora-modules-to-save embed_tokens"),
              HasSubstr("is also the head"));
  const auto other = run("eval --data tokens.bin --model " + kLoraBases +
                         "llama_biases --adapter " + kLoraFixtures + "llama");
  EXPECT_EQ(other.status, 4);
  EXPECT_THAT(other.output, AllOf(HasSubstr("lora_B.weight is [32, 4], expected [48, 4]"),
                                  HasSubstr("an adapter of this model?")));
}

// A base without a head keeps its own names, and its PEFT adapters keep theirs.
TEST_F(LoraRuns, OfABareEncoderEqualPeft) {
  const auto ended = run("compare --json --tolerance 1e-5 --model " + kLoraBases +
                         "bert_bare --adapter " + kLoraFixtures + "bert_bare --reference " +
                         kLoraFixtures + "bert_bare/reference.safetensors 2> /dev/null");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(nlohmann::json::parse(ended.output)["ok"].get<bool>());
}

class LoraComparisons : public ::testing::TestWithParam<std::string> {};

TEST_P(LoraComparisons, EqualPeftOnTwoRanks) {
  const std::string name = GetParam();
  const std::string base = name == "llama_patterns" ? "llama" : name;
  const std::string words = fmt::format(
      "OMP_NUM_THREADS=1 fullshard compare --ranks 2 --json --model {}{} --adapter "
      "{}{} --reference {}{}/reference.safetensors 2> /dev/null",
      kLoraBases, base, kLoraFixtures, name, kLoraFixtures, name);
  const launch::Ended ended = launch::shell(words + " --tolerance 1e-5");
  EXPECT_EQ(ended.status, 0) << ended.output;
  const auto found = nlohmann::json::parse(ended.output);
  EXPECT_TRUE(found["ok"].get<bool>());
  EXPECT_GE(found["results"].size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(Models, LoraComparisons,
                         ::testing::Values("llama", "llama_patterns", "gpt2", "qwen2",
                                           "bert_classes", "t5"),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace fullshard::cli
