// SPDX-License-Identifier: Apache-2.0
// The command lines of Hugging Face's guides, with small models instead of theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/short_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSmallT5 = R"({"architectures": ["T5ForConditionalGeneration"],
  "model_type": "t5", "d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2, "num_layers": 1,
  "num_decoder_layers": 1, "vocab_size": 2000, "dropout_rate": 0.0, "eos_token_id": 1,
  "pad_token_id": 0, "decoder_start_token_id": 0, "feed_forward_proj": "relu",
  "relative_attention_num_buckets": 8, "is_encoder_decoder": true, "tie_word_embeddings": true})";

constexpr const char* kSmallGpt2 = R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
  "n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 64, "vocab_size": 1000,
  "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0})";

class TrainerRuns : public ShortRuns {
 protected:
  void SetUp() override {
    make_model("t5-small", kSmallT5, "t5_model/spiece.model");
    make_model("gpt2", kSmallGpt2, "gpt2/tokenizer.json");
    std::string pairs;
    for (int i = 0; i < 40; ++i) {
      pairs += R"({"translation": {"en": "good morning", "ro": "buna dimineata"}})"
               "\n";
    }
    folder_.write("pairs.json", pairs);
    std::string text;
    for (int i = 0; i < 60; ++i) text += "the lamp of the lighthouse stays bright in the storm.\n";
    folder_.write("corpus.txt", text);
  }

  void make_model(const std::string& name, const std::string& config, const std::string& text) {
    const std::filesystem::path tokenizer = FULLSHARD_SOURCE_DIR "/tests/fixtures/text/" + text;
    std::filesystem::create_directories(folder_ / name);
    folder_.write(name + "/config.json", config);
    std::filesystem::copy(tokenizer, folder_ / (name + "/" + tokenizer.filename().string()));
  }

  nlohmann::json record_of(const std::string& output) {
    return nlohmann::json::parse(folder_.read(output + "/run.json"));
  }
};

TEST_F(TrainerRuns, OfRunTranslationTrainASmallT5) {
  const launch::Ended ended = run(
      "train --ranks 2 --model_name_or_path t5-small --do_train --do_eval --train_file pairs.json "
      "--validation_file pairs.json --source_lang en --target_lang ro "
      "--source_prefix 'translate English to Romanian: ' --output_dir out "
      "--per_device_train_batch_size=4 --per_device_eval_batch_size=4 --overwrite_output_dir "
      "--predict_with_generate --max_source_length 32 --max_target_length 32 "
      "--max_train_samples 32 --num_train_epochs 1.5 --learning_rate 1e-3 --warmup_ratio 0.5 "
      "--label_smoothing_factor 0.1 --eval_strategy epoch --save_strategy epoch "
      "--save_total_limit 1 --load_best_model_at_end --logging_steps 1 --report_to none");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("warning: --predict_with_generate: without effect"));
  const auto steps = metrics("out");
  ASSERT_EQ(steps.size(), 6);  // 32 examples, 8 a step: 4 steps an epoch
  // linear: up to 1e-3 in three steps, down in three.
  EXPECT_DOUBLE_EQ(steps[1]["lr"].get<double>(), 1e-3 / 3);
  EXPECT_DOUBLE_EQ(steps[3]["lr"].get<double>(), 1e-3);
  EXPECT_DOUBLE_EQ(steps[5]["lr"].get<double>(), 1e-3 / 3);
  EXPECT_FALSE(steps[2].contains("eval_loss"));
  EXPECT_TRUE(steps[3].contains("eval_loss"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/checkpoints/step-000006"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/model/model.safetensors"));
  EXPECT_EQ(record_of("out")["status"], "done");
}

TEST_F(TrainerRuns, OfTheDeepSpeedGuideTakeItsFileAndItsAutoValues) {
  folder_.write("ds_config_zero3.json", R"({
    "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                              "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"})");
  const launch::Ended ended = run(
      "train --deepspeed ds_config_zero3.json --model_name_or_path t5-small "
      "--per_device_train_batch_size 1 --output_dir out --overwrite_output_dir --bf16 --do_train "
      "--max_train_samples 20 --num_train_epochs 1 --train_file pairs.json --source_lang en "
      "--target_lang ro --gradient_accumulation_steps 2 --max_grad_norm 0.5 --warmup_steps 4");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(metrics("out").size(), 10);
  const auto config = record_of("out")["configuration"];
  EXPECT_EQ(config["bf16.enabled"]["value"], true);
  EXPECT_EQ(config["gradient_clipping"]["value"], 0.5);
  EXPECT_EQ(config["scheduler.params.warmup_num_steps"]["value"], 4);
  EXPECT_EQ(config["train_batch_size"]["value"], 2);
}

TEST_F(TrainerRuns, OfRunClmTrainFromScratch) {
  const launch::Ended ended = run(
      "train --config_name gpt2 --tokenizer_name gpt2 --train_file corpus.txt "
      "--validation_file corpus.txt --per_device_train_batch_size 2 --per_device_eval_batch_size 4 "
      "--do_train --do_eval --block_size 16 --output_dir clm --max_steps 3 --eval_steps 2 "
      "--max_eval_samples 4 --adam_beta2 0.95 --weight_decay 0.1 --optim adamw_torch "
      "--lr_scheduler_type polynomial --lr_scheduler_kwargs '{\"power\": 2.0}' --seed 7");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto steps = metrics("clm");
  ASSERT_EQ(steps.size(), 3);
  EXPECT_TRUE(steps[1].contains("eval_loss"));
  const double left = 2.0 / 3.0;
  EXPECT_NEAR(steps[1]["lr"].get<double>(), (5e-5 - 1e-7) * left * left + 1e-7, 1e-18);
  EXPECT_THAT(ended.output, Not(HasSubstr("warning")));
}

TEST_F(TrainerRuns, FindModelAndDataByTheirNamesInTheCache) {
  const std::string hash(40, 'b');
  for (const std::string kind : {"models--google-t5--t5-small", "datasets--org--pairs"}) {
    const std::string place = "hf/hub/" + kind;
    std::filesystem::create_directories(folder_ / (place + "/refs"));
    std::filesystem::create_directories(folder_ / (place + "/snapshots"));
    folder_.write(place + "/refs/main", hash);
  }
  std::filesystem::rename(folder_ / "t5-small",
                          folder_ / ("hf/hub/models--google-t5--t5-small/snapshots/" + hash));
  const std::string data = "hf/hub/datasets--org--pairs/snapshots/" + hash;
  std::filesystem::create_directories(folder_ / data);
  std::filesystem::copy(folder_ / "pairs.json", folder_ / (data + "/train.json"));
  std::filesystem::copy(folder_ / "pairs.json", folder_ / (data + "/validation.json"));
  const std::string words =
      " --source_lang en --target_lang ro --do_train --do_eval --max_steps 1 --output_dir out "
      "--per_device_train_batch_size 2 --dataset_name org/pairs --model_name_or_path ";
  const launch::Ended ended =
      launch::shell("export HF_HOME=" + folder_.path() + "/hf; cd " + folder_.path() +
                    "; fullshard train --no-save-model" + words + "google-t5/t5-small");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(metrics("out").at(0).contains("eval_loss"));
  const launch::Ended absent = run("train --overwrite" + words + "google-t5/t5-large");
  EXPECT_EQ(absent.status, 2) << absent.output;
  EXPECT_THAT(absent.output, HasSubstr("not in the Hugging Face cache (" + folder_.path() +
                                       "/.cache/huggingface/hub); download it: hf download "
                                       "google-t5/t5-large"));
  // A preset of that name has no weights, but the Trainer's flag means a model with weights.
  const launch::Ended preset = run("train --overwrite" + words + "t5-small");
  EXPECT_EQ(preset.status, 2) << preset.output;
  EXPECT_THAT(preset.output,
              HasSubstr("model \"t5-small\": the preset of that name has no weights, "
                        "and the Hugging Face cache ("));
}

TEST_F(TrainerRuns, ContradictAFileByTheNameThatWasTyped) {
  folder_.write("ds.json", R"({"gradient_clipping": 1.0})");
  const launch::Ended ended =
      run("train --deepspeed ds.json --model_name_or_path gpt2 --train_file corpus.txt "
          "--max_grad_norm 0.5");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output,
            "error: ds.json:1: gradient_clipping: is 1, but --max_grad_norm (--clip) is 0.5; "
            "leave out the flag, or change the key\n");
}

TEST_F(TrainerRuns, UnderLaunchLeaveTheProgramItsOwnWords) {
  const launch::Ended ended =
      run("launch --ranks 2 --tee 0 sh -c 'echo \"$@\"' program --learning_rate 1e-3 --ranks 7 "
          "--frobnicate --fp16");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("--learning_rate 1e-3 --ranks 7 --frobnicate --fp16\n"));
}

}  // namespace
}  // namespace fullshard::cli
