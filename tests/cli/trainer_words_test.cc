// SPDX-License-Identifier: Apache-2.0
// Command lines of transformers' scripts translated into our own flags.
#include "fullshard/cli/flags/trainer_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "fullshard/cli/flags/trainer_flags.h"
#include "tests/errors.h"
#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> split_words(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

TrainerWords translated(const std::string& line) {
  return translate_trainer_words(split_words("train " + line));
}

// Our own flags for a line, without the command.
std::string own(const std::string& line) {
  const TrainerWords result = translated(line);
  EXPECT_THAT(result.warnings, IsEmpty()) << line;
  std::string text;
  for (size_t i = 1; i < result.words.size(); ++i) text += (i > 1 ? " " : "") + result.words[i];
  return text;
}

// With the command, for a line that may set a value twice.
std::string line_of(const std::string& line) {
  std::string text;
  for (const std::string& word : translate_trainer_words(split_words(line)).words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

std::string refusal_of(const std::string& line) {
  return fullshard::testing::message_of([&] { translated(line); });
}

TEST(TrainerFlags, OfThePageAreThoseOfTheTable) {
  std::ifstream file(FULLSHARD_SOURCE_DIR "/docs/train_command.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(page, HasSubstr("\n\n" + trainer_flag_page() + "\n"));
}

TEST(TrainerFlags, HaveOneRowEach) {
  for (const TrainerFlag& flag : trainer_flags()) {
    EXPECT_EQ(find_trainer_flag(flag.name), &flag) << flag.name;
  }
  EXPECT_EQ(find_trainer_flag("per-device-train-batch-size"),
            find_trainer_flag("per_device_train_batch_size"));
  EXPECT_EQ(find_trainer_flag("steps"), nullptr);
}

TEST(TrainerFlags, StandForFlagsThatThereAre) {
  const std::string help = launch::shell("fullshard train --help").output;
  for (const TrainerFlag& flag : trainer_flags()) {
    std::istringstream words{std::string(flag.own)};
    for (std::string word; words >> word;) {
      if (word.ends_with(',')) word.pop_back();
      if (word.starts_with("--")) {
        EXPECT_THAT(help, ::testing::ContainsRegex(word + "[ ,=]")) << flag.name;
      }
    }
  }
}

TEST(TrainerWords, AreOursUnderAnotherName) {
  EXPECT_EQ(own("--learning_rate 1e-3"), "--lr 1e-3");
  EXPECT_EQ(own("--learning-rate=1e-3"), "--lr 1e-3");
  EXPECT_EQ(own("--model_name_or_path m --train_file a.json --validation_file b.json"),
            "--data a.json --eval-data b.json --model m --pretrained");
  EXPECT_EQ(own("--model_name_or_path m --from-scratch"), "--from-scratch --model m");
  EXPECT_EQ(own("--per_device_train_batch_size 4 --per_device_eval_batch_size=2"),
            "--micro-batch 4 --eval-micro-batch 2");
  EXPECT_EQ(own("--optim adamw_torch_fused --lr_scheduler_type cosine"),
            "--optimizer AdamW --schedule cosine");
  // Our own flags, and those of the same name, stay as they are.
  EXPECT_EQ(own("--lr 1 --source_lang en --seed 7 --data a b"),
            "--lr 1 --source_lang en --seed 7 --data a b");
}

TEST(TrainerWords, TakeTruthValuesAsTransformersDoes) {
  EXPECT_EQ(own("--fp16"), "--precision fp16");
  EXPECT_EQ(own("--bf16 True --gradient_checkpointing 1 --overwrite_output_dir=yes"),
            "--precision bf16 --recompute --overwrite");
  EXPECT_EQ(own("--fp16 0 --bf16 false --gradient_checkpointing False --push_to_hub False"), "");
  EXPECT_EQ(own("--tf32 1 --lr 2"), "--lr 2 --tf32 on");
  EXPECT_EQ(own("--tf32 0"), "--tf32 off");
  EXPECT_EQ(own("--tf32 off"), "--tf32 off");
  EXPECT_EQ(own("--fp16_full_eval --use_cpu"), "--eval-precision fp16 --device cpu");
  EXPECT_EQ(refusal_of("--fp16 maybe"), "--fp16: is 'maybe', expected true or false");
}

TEST(TrainerWords, OfStepsSaveAndResumeMeanWhatTheyDoThere) {
  EXPECT_EQ(own("--max_steps -1 --num_train_epochs 0.5"), "--epochs 0.5");
  EXPECT_EQ(own("--max_steps 20"), "--steps 20");
  EXPECT_EQ(own("--resume_from_checkpoint"), "--resume auto");
  EXPECT_EQ(own("--resume_from_checkpoint True"), "--resume auto");
  EXPECT_EQ(own("--resume_from_checkpoint run/checkpoint-500"), "--resume run/checkpoint-500");
  EXPECT_EQ(own("--save_steps 500 --save_total_limit 2 --load_best_model_at_end "
                "--save_on_each_node"),
            "--keep 2 --restore-best --node-local --save-every 500");
  EXPECT_EQ(own("--save_strategy epoch"), "--save-every epoch");
  EXPECT_EQ(own("--save_strategy steps"), "--save-every 500");
  EXPECT_EQ(own("--save_strategy no"), "");
  EXPECT_EQ(own("--save_strategy best"), "--keep-best");
  EXPECT_EQ(own("--max_train_samples 50"), "--max-samples 50");
  EXPECT_EQ(own("--max_train_samples 50 --validation_file v"),
            "--max-samples 50 --eval-data v --max-eval-samples 0");
  EXPECT_EQ(own("--max_train_samples 50 --eval-data v --max_eval_samples 5"),
            "--eval-data v --max_eval_samples 5 --max-samples 50");
  EXPECT_EQ(own("--config_name gpt2"), "--model gpt2 --from-scratch");
  EXPECT_EQ(own("--report_to none"), "");
  EXPECT_EQ(own("--report_to tensorboard"), "--report-to tensorboard");
  EXPECT_EQ(own("--report_to tensorboard csv"), "--report-to all");
  EXPECT_EQ(own("--report-to csv"), "--report-to csv");
}

TEST(TrainerWords, OfAdaptersAreThoseOfTrl) {
  EXPECT_EQ(own("--use_peft"), "--lora-rank 16 --lora-alpha 32 --lora-dropout 0.05");
  EXPECT_EQ(own("--use_peft --lora_r 4 --lora_alpha 8 --lora_target_modules q_proj v_proj"),
            "--lora_alpha 8 --lora-rank 4 --lora-targets q_proj v_proj --lora-dropout 0.05");
  EXPECT_EQ(own("--use_peft False"), "");
  EXPECT_EQ(own("--use_peft --adapter there"), "--adapter there");
  EXPECT_EQ(own("--load_in_8bit --use_rslora"), "--base-precision int8 --lora-rslora");
  EXPECT_THAT(refusal_of("--load_in_4bit"), HasSubstr("--base-precision int8 keeps the base"));
  EXPECT_THAT(refusal_of("--use_dora"), HasSubstr("adapters are LoRA's"));
}

TEST(TrainerWords, OfAWarmUpMeanALinearSchedule) {
  EXPECT_EQ(own("--warmup_steps 50"), "--warmup 50 --schedule linear");
  EXPECT_EQ(own("--warmup_ratio 0.1"), "--warmup 0.1 --schedule linear");
  EXPECT_EQ(own("--warmup_steps 0"), "--warmup 0");
  EXPECT_EQ(own("--warmup_steps 50 --lr_scheduler_type cosine"), "--schedule cosine --warmup 50");
  // A DeepSpeed file has a schedule of its own, or DeepSpeed's default.
  EXPECT_EQ(own("--deepspeed ds.json --warmup_steps 5"), "--deepspeed ds.json --warmup 5");
  const TrainerWords both = translated("--warmup_steps 50 --warmup_ratio 0.1");
  EXPECT_THAT(both.warnings,
              ElementsAre("--warmup_ratio: without effect: --warmup_steps is given"));
}

TEST(TrainerWords, OfAnEvaluationNeedSomethingToEvaluateOn) {
  EXPECT_EQ(own("--validation_file v.json --eval_strategy epoch --do_eval --do_train"),
            "--eval-data v.json --eval-every epoch");
  EXPECT_EQ(own("--eval-data v.json --eval_steps 0.1"), "--eval-data v.json --eval-every 0.1");
  EXPECT_EQ(own("--evaluation_strategy no"), "");
  EXPECT_EQ(own("--do_train --dataset_name corpus --do_eval"), "--data corpus --eval-data corpus");
  EXPECT_EQ(own("--dataset_name corpus"), "--data corpus");
  EXPECT_EQ(own("--do_train --dataset_name wmt16 --dataset_config ro-en --do_eval"),
            "--data wmt16:ro-en --eval-data wmt16:ro-en");
  for (const std::string asked : {"--do_eval", "--eval_steps 5", "--eval_strategy=steps"}) {
    EXPECT_EQ(refusal_of(asked), asked.substr(0, asked.find_first_of(" =")) +
                                     ": no evaluation data; name them with "
                                     "--validation_file (--eval-data)");
  }
}

TEST(TrainerWords, ThatContradictAreBothNamed) {
  EXPECT_EQ(refusal_of("--fp16 --bf16"),
            "--bf16: stands for --precision bf16, but --fp16 stands for --precision fp16; keep one "
            "of them");
  EXPECT_EQ(refusal_of("--data a --train_file b"),
            "--train_file: stands for --data b, but --data a is given too; keep one of them");
  EXPECT_EQ(own("--learning_rate 1e-3 --lr 0.001"), "--lr 0.001");  // the same number
  EXPECT_EQ(own("--overwrite --overwrite_output_dir"), "--overwrite");
}

TEST(TrainerWords, GivenTwiceCountAsGivenLast) {
  const auto notes = [](const std::string& line) { return translated(line).notes; };
  const std::string flags = "--learning_rate 1e-3 --lr 5e-4";
  EXPECT_EQ(own(flags), "--lr 5e-4");
  EXPECT_THAT(notes(flags), ElementsAre("--learning_rate and --lr are both given; the last counts: "
                                        "5e-4"));
  EXPECT_EQ(own("--lr 5e-4 --learning_rate 1e-3"), "--lr 1e-3");
  EXPECT_EQ(own("-o a --output_dir b"), "--output b");
  EXPECT_EQ(own("--max_steps 20 --steps 2 --max_steps 30"), "--steps 30");
  EXPECT_EQ(own("--max_seq_length 8 --block_size 16"), "--sequence-length 16");
  EXPECT_THAT(notes("--learning_rate 1 --learning_rate 2"),
              ElementsAre("--learning_rate: is given several times; the last counts: 2"));
  EXPECT_THAT(notes("--learning_rate 1 --learning_rate 1"), IsEmpty());
  EXPECT_THAT(notes("--learning_rate 1e-3 --lr 0.001"), IsEmpty());
  EXPECT_THAT(notes("--max_seq_length 8 --block_size 8"), IsEmpty());
}

TEST(TrainerWords, OfPrecisionInItsOldForms) {
  EXPECT_EQ(own("--no_tf32"), "--tf32 off");
  EXPECT_THAT(translated("--no_dataloader_pin_memory").warnings.at(0),
              HasSubstr("--no_dataloader_pin_memory: without effect"));
  for (const std::string backend : {"amp", "apex", "auto"}) {
    EXPECT_EQ(own("--fp16 --fp16_backend " + backend), "--precision fp16");
  }
  for (const std::string level : {"O1", "01", "O2"}) {  // a guide types the digit 0
    EXPECT_EQ(own("--fp16 --fp16_backend apex --fp16_opt_level " + level), "--precision fp16");
  }
  EXPECT_EQ(refusal_of("--fp16_backend tpu"),
            "--fp16_backend: is 'tpu', expected auto, amp or apex");
  EXPECT_EQ(refusal_of("--fp16_opt_level O4"),
            "--fp16_opt_level: is 'O4', expected O0, O1, O2 or O3");
  EXPECT_THAT(refusal_of("--fp16_opt_level O3"), HasSubstr("fp16.fp16_master_weights_and_grads"));
}

TEST(TrainerWords, OfAnEvaluationAloneDoNotTrain) {
  const std::string line =
      "train --num_gpus 2 --model_name_or_path m --train_file t.json --validation_file v.json "
      "--per_device_eval_batch_size 4 --max_eval_samples 8 --learning_rate 1e-3 --output_dir out "
      "--steps 5 -n 2 --do_eval --deepspeed ds.json";
  const TrainerWords result = translate_trainer_words(split_words(line));
  EXPECT_EQ(line_of(line),
            "eval --num_gpus 2 --max-samples 8 -n 2 --deepspeed ds.json --data v.json "
            "--micro-batch 4 --model m");
  EXPECT_THAT(result.notes, ElementsAre("--do_eval without --do_train: the model is evaluated, as "
                                        "by `fullshard eval`, and not trained"));
  EXPECT_THAT(result.warnings,
              ElementsAre("--steps, --train_file, --learning_rate, --output_dir: without effect: "
                          "eval does not train"));
  EXPECT_EQ(line_of("train --eval-data v --data t --do_eval True"), "eval --data v");
  EXPECT_EQ(line_of("train --do_eval --do_train False --eval-data=v"), "eval --data=v");
  EXPECT_EQ(refusal_of("--do_eval --data t"),
            "--do_eval: no evaluation data; name them with --validation_file "
            "(--eval-data)");
}

TEST(TrainerWords, AreThoseOfEvalAndGenerateToo) {
  EXPECT_EQ(line_of("eval --model_name_or_path m --validation_file v --do_eval --block_size 16 "
                    "--per_device_eval_batch_size 4 --max_eval_samples 8 --bf16_full_eval"),
            "eval --data v --sequence-length 16 --micro-batch 4 --max-samples 8 "
            "--eval-precision bf16 --model m");
  EXPECT_EQ(line_of("eval --model m --data d --micro-batch 2 --seed 1"),
            "eval --model m --data d --micro-batch 2 --seed 1");
  EXPECT_EQ(line_of("eval --dataset_name wmt16 --dataset_config ro-en --model m"),
            "eval --model m --data wmt16:ro-en");
  EXPECT_EQ(line_of("generate --model_name_or_path m --tokenizer_name t --test_file p.jsonl "
                    "--per_device_eval_batch_size 4 --num_beams 2 --generation_max_length 20"),
            "generate --num_beams 2 --tokenizer t --prompts p.jsonl --batch 4 --max-new-tokens 20 "
            "--model m");
  const auto refusal = [](const std::string& line) {
    return fullshard::testing::message_of([&] { line_of(line); });
  };
  EXPECT_EQ(refusal("eval --do_train"), "--do_train: eval does not train; use fullshard train");
  EXPECT_EQ(refusal("generate --do_eval"),
            "--do_eval: generate does not evaluate; use fullshard eval");
  EXPECT_EQ(refusal("eval --data d --validation_file v"),
            "--validation_file: stands for --data v, but --data d is given too; keep one of them");
}

TEST(TrainerWords, ThatCannotBeHadAreRefused) {
  EXPECT_EQ(refusal_of("--push_to_hub"),
            "--push_to_hub: is not supported; nothing is sent to the hub; `hf upload` does it "
            "afterwards");
  EXPECT_EQ(refusal_of("--optim adafactor"),
            "--optim: 'adafactor' is not supported; use adamw_torch, sgd, adagrad or lion_32bit, "
            "or --optimizer");
  EXPECT_EQ(refusal_of("--report_to wandb"),
            "--report_to: is 'wandb', expected none, tensorboard, csv or all; every run leaves "
            "metrics.jsonl and report.html");
  EXPECT_EQ(refusal_of("--do_train False"),
            "--do_train: is false, but train trains; use fullshard eval");
  EXPECT_THAT(refusal_of("--do_predict"), HasSubstr("fullshard generate --model DIR/model"));
  EXPECT_EQ(refusal_of("--learning_rate --fp16"), "--learning_rate: has no value");
}

TEST(TrainerWords, ThatMakeNoDifferenceAreNamed) {
  const TrainerWords result =
      translated("--dataloader_num_workers 2 --lr 1 --label_smoothing_factor 0.1 --run_name a b");
  EXPECT_THAT(result.words, ElementsAre("train", "--lr", "1", "--label-smoothing", "0.1"));
  EXPECT_THAT(result.warnings,
              ElementsAre("--dataloader_num_workers: without effect: tokenising takes all cores, "
                          "loading one thread",
                          "--run_name: without effect: a run is named by its folder"));
}

TEST(TrainerWords, AreThoseOfMessages) {
  const launch::Ended ended = launch::shell(
      "unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=/nowhere; fullshard train "
      "--model_name_or_path m --train_file d --learning_rate fast --num_train_epochs -1");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output,
            "error: --num_train_epochs (--epochs): is -1, expected a number above 0\n");
  const std::vector<FlagAlias> aliases = {{"--learning_rate", "--lr"}};
  EXPECT_EQ(with_typed_names("--lr: is 1, --lr-x", aliases),
            "--learning_rate (--lr): is 1, --lr-x");
  EXPECT_EQ(with_typed_names("no --lrx", aliases), "no --lrx");
}

}  // namespace
}  // namespace fullshard::cli
