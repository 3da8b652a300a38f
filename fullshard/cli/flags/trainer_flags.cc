// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/trainer_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fullshard::cli {
namespace {

using Kind = TrainerFlagKind;

constexpr std::string_view kOwnCores = "tokenising takes all cores, loading one thread";
constexpr std::string_view kNoHub = "nothing is sent to the hub; `hf upload` does it afterwards";
constexpr std::string_view kNoNetwork = "nothing is downloaded, so no login is needed";
constexpr std::string_view kLossOnly =
    "evaluation gives the loss; `fullshard generate` writes text";
constexpr std::string_view kOwnBuckets = "units are reduced as a whole, without DDP's buckets";

constexpr auto kTrainerFlags = std::to_array<TrainerFlag>({
    // Model and data.
    {"model_name_or_path", Kind::special, "--model, --pretrained",
     "a name means a model with weights, not a preset"},
    {"config_name", Kind::special, "--model, --from-scratch",
     "without `model_name_or_path`: that model, from scratch"},
    {"tokenizer_name", Kind::value, "--tokenizer"},
    {"train_file", Kind::value, "--data"},
    {"validation_file", Kind::value, "--eval-data"},
    {"dataset_name", Kind::special, "--data, --eval-data",
     "a file, a folder or a name of the hub; evaluation data where they are asked for"},
    {"dataset_config_name", Kind::special, "--data", "`NAME:CONFIGURATION`"},
    {"dataset_config", Kind::special, "--data", "the same"},
    {"max_train_samples", Kind::special, "--max-samples", "of the training data only"},
    {"max_eval_samples", Kind::same, "--max-eval-samples"},
    {"source_lang", Kind::same, "--source-lang"},
    {"target_lang", Kind::same, "--target-lang"},
    {"source_prefix", Kind::same, "--source-prefix"},
    {"block_size", Kind::value, "--sequence-length"},
    {"max_seq_length", Kind::value, "--sequence-length"},
    {"max_source_length", Kind::value, "--sequence-length"},
    {"max_target_length", Kind::value, "--target-length"},
    {"mlm_probability", Kind::value, "--mask-probability"},
    {"label_smoothing_factor", Kind::value, "--label-smoothing"},
    // Steps.
    {"per_device_train_batch_size", Kind::value, "--micro-batch"},
    {"per_gpu_train_batch_size", Kind::value, "--micro-batch"},
    {"per_device_eval_batch_size", Kind::value, "--eval-micro-batch"},
    {"per_gpu_eval_batch_size", Kind::value, "--eval-micro-batch"},
    {"gradient_accumulation_steps", Kind::value, "--accumulate"},
    {"num_train_epochs", Kind::value, "--epochs",
     "without it one epoch, where the Trainer takes 3"},
    {"dataloader_drop_last", Kind::truth, "--drop-last"},
    {"max_steps", Kind::special, "--steps", "-1: by epochs"},
    {"learning_rate", Kind::value, "--lr"},
    {"lr_scheduler_type", Kind::value, "--schedule"},
    {"lr_scheduler_kwargs", Kind::value, "--schedule-args"},
    {"warmup_steps", Kind::special, "--warmup",
     "below 1 a share of the steps; without a schedule or a DeepSpeed file also `--schedule "
     "linear`"},
    {"warmup_ratio", Kind::special, "--warmup", "gives way to `warmup_steps`"},
    {"max_grad_norm", Kind::value, "--clip"},
    {"optim", Kind::special, "--optimizer",
     "`adamw_torch`, `adamw_torch_fused`, `adamw_hf`, `sgd`, `adagrad`, `lion_32bit`"},
    {"weight_decay", Kind::same, "--weight-decay",
     "of all parameters, where the Trainer leaves out biases and the weights of norms"},
    {"adam_beta1", Kind::same, "--adam-beta1"},
    {"adam_beta2", Kind::same, "--adam-beta2"},
    {"adam_epsilon", Kind::same, "--adam-epsilon"},
    {"seed", Kind::same, "--seed"},
    {"full_determinism", Kind::truth, "--deterministic"},
    // Adapters, with the names of TRL's scripts.
    {"use_peft", Kind::special, "--lora-rank, --lora-alpha, --lora-dropout",
     "TRL's 16, 32 and 0.05 where they are not given"},
    {"lora_r", Kind::value, "--lora-rank"},
    {"lora_alpha", Kind::same, "--lora-alpha"},
    {"lora_dropout", Kind::same, "--lora-dropout"},
    {"lora_target_modules", Kind::value, "--lora-targets"},
    {"lora_modules_to_save", Kind::same, "--lora-modules-to-save"},
    {"use_rslora", Kind::truth, "--lora-rslora"},
    {"use_dora", Kind::refused, "", "adapters are LoRA's"},
    {"lora_task_type", Kind::no_effect, "", "the model decides it"},
    {"load_in_8bit", Kind::special, "--base-precision int8"},
    {"load_in_4bit", Kind::refused, "", "--base-precision int8 keeps the base in 8 bits"},
    // Precision and memory.
    {"fp16", Kind::special, "--precision fp16"},
    {"bf16", Kind::special, "--precision bf16"},
    {"tf32", Kind::special, "--tf32", "true or false for on or off"},
    {"no_tf32", Kind::special, "--tf32 off"},
    {"fp16_backend", Kind::special, "", "`auto`, `amp` or `apex`: they make no difference here"},
    {"half_precision_backend", Kind::special, "", "the same"},
    {"fp16_opt_level", Kind::special, "", "`O1` or `O2`, which is how fp16 is computed here"},
    {"fp16_full_eval", Kind::special, "--eval-precision fp16"},
    {"bf16_full_eval", Kind::special, "--eval-precision bf16"},
    {"gradient_checkpointing", Kind::truth, "--recompute"},
    {"activation_checkpointing", Kind::truth, "--recompute"},
    {"use_cpu", Kind::special, "--device cpu"},
    {"no_cuda", Kind::special, "--device cpu"},
    {"fsdp_transformer_layer_cls_to_wrap", Kind::value, "--wrap"},
    {"fsdp_min_num_params", Kind::value, "--wrap"},
    {"ddp_backend", Kind::value, "--backend"},
    {"ddp_timeout", Kind::value, "--step-timeout"},
    // Evaluation, checkpoints, output.
    {"do_train", Kind::special, "", "what `train` does"},
    {"do_eval", Kind::special, "",
     "what `train` does with evaluation data, which must be named; without `--do_train` the model "
     "is evaluated and not trained, as by `fullshard eval`"},
    {"eval_strategy", Kind::special, "--eval-every", "`no`, `steps` or `epoch`"},
    {"evaluation_strategy", Kind::special, "--eval-every", "the same"},
    {"eval_steps", Kind::special, "--eval-every", "below 1 a share of the run"},
    {"save_strategy", Kind::special, "--save-every",
     "`no`, `steps` or `epoch`; `best` is `--keep-best`"},
    {"save_steps", Kind::special, "--save-every",
     "below 1 a share of the run; without it nothing is saved, where the Trainer takes 500"},
    {"save_total_limit", Kind::special, "--keep"},
    {"load_best_model_at_end", Kind::truth, "--restore-best"},
    {"save_on_each_node", Kind::truth, "--node-local"},
    {"resume_from_checkpoint", Kind::special, "--resume", "true: `auto`"},
    {"output_dir", Kind::value, "--output"},
    {"overwrite_output_dir", Kind::truth, "--overwrite"},
    {"logging_steps", Kind::special, "--log-every",
     "below 1: every step is logged, with a warning"},
    {"report_to", Kind::special, "",
     "`--report-to`: `none`, `tensorboard`, `csv` or `all`; others are an error"},
    // Unsupported flags.
    {"auto_find_batch_size", Kind::refused, "", "use --auto, which measures what fits"},
    {"do_predict", Kind::refused, "",
     "use `fullshard generate --model DIR/model --prompts FILE` after the run"},
    {"line_by_line", Kind::refused, "", "texts are packed one after another"},
    {"streaming", Kind::refused, "", "data are files on this machine, mapped and not loaded"},
    {"group_by_length", Kind::refused, "", "examples come in the order of --order"},
    {"save_only_model", Kind::refused, "",
     "checkpoints can be resumed; DIR/model is the model alone"},
    {"push_to_hub", Kind::refused, "", kNoHub},
    {"torchscript", Kind::refused, "", "models are saved as Hugging Face folders"},
    {"neftune_noise_alpha", Kind::refused, "", "no noise is added to embeddings"},
    {"metric_for_best_model", Kind::special, "", "`loss` or `eval_loss`; others are an error"},
    {"greater_is_better", Kind::refused, "", "the best model is that of the lowest loss"},
    // Flags without effect.
    {"test_file", Kind::no_effect, "", "nothing is predicted; `fullshard generate` writes text"},
    {"val_max_target_length", Kind::no_effect, "", "evaluation cuts targets as training does"},
    {"preprocessing_num_workers", Kind::no_effect, "", kOwnCores},
    {"dataloader_num_workers", Kind::no_effect, "", kOwnCores},
    {"dataloader_pin_memory", Kind::no_effect, "", kOwnCores},
    {"dataloader_persistent_workers", Kind::no_effect, "", kOwnCores},
    {"dataloader_prefetch_factor", Kind::no_effect, "", kOwnCores},
    {"overwrite_cache", Kind::no_effect, "", "tokens are made again when the file changes"},
    {"pad_to_max_length", Kind::no_effect, "", "a batch is padded to its longest example"},
    {"remove_unused_columns", Kind::no_effect, "", "only the fields that are named are read"},
    {"predict_with_generate", Kind::no_effect, "", kLossOnly},
    {"prediction_loss_only", Kind::no_effect, "", kLossOnly},
    {"num_beams", Kind::no_effect, "", kLossOnly},
    {"generation_max_length", Kind::no_effect, "", kLossOnly},
    {"generation_num_beams", Kind::no_effect, "", kLossOnly},
    {"eval_accumulation_steps", Kind::no_effect, "", "evaluation keeps no predictions"},
    {"use_fast_tokenizer", Kind::no_effect, "", "there is one kind of tokenizer"},
    {"trust_remote_code", Kind::no_effect, "", "code in a model's folder is never run"},
    {"use_auth_token", Kind::no_effect, "", kNoNetwork},
    {"token", Kind::no_effect, "", kNoNetwork},
    {"model_revision", Kind::no_effect, "", "the folder is what is trained"},
    {"torch_dtype", Kind::no_effect, "", "weights are read as fp32; --precision says the rest"},
    {"low_cpu_mem_usage", Kind::no_effect, "", "no rank ever holds the whole model"},
    {"torch_compile", Kind::no_effect, "", "kernels are compiled beforehand"},
    {"gradient_checkpointing_kwargs", Kind::no_effect, "", "there is one way of recomputing"},
    {"ddp_find_unused_parameters", Kind::no_effect, "", "unused parameters are found anyway"},
    {"ddp_bucket_cap_mb", Kind::no_effect, "", kOwnBuckets},
    {"ddp_broadcast_buffers", Kind::no_effect, "", "buffers are those of rank 0 anyway"},
    {"average_tokens_across_devices", Kind::no_effect, "", "the loss is the mean over all labels"},
    {"save_safetensors", Kind::no_effect, "", "models are saved as safetensors"},
    {"skip_memory_metrics", Kind::no_effect, "", "memory is measured anyway"},
    {"disable_tqdm", Kind::no_effect, "", "--quiet leaves the progress line out"},
    {"run_name", Kind::no_effect, "", "a run is named by its folder"},
    {"logging_dir", Kind::no_effect, "", "logs are in DIR/logs"},
    {"logging_strategy", Kind::no_effect, "", "--log-every says how often"},
    {"logging_first_step", Kind::no_effect, "", "--log-every 1 logs every step"},
    {"hub_model_id", Kind::no_effect, "", kNoHub},
    {"hub_token", Kind::no_effect, "", kNoHub},
});

std::string with_underscores(std::string_view name) {
  std::string plain(name);
  std::ranges::replace(plain, '-', '_');
  return plain;
}

std::string effect_of(const TrainerFlag& flag) {
  switch (flag.kind) {
    case Kind::no_effect:
      return fmt::format("a warning: {}", flag.note);
    case Kind::refused:
      return fmt::format("an error: {}", flag.note);
    default:
      break;
  }
  std::string text = flag.own.empty() ? "" : fmt::format("`{}`", flag.own);
  if (!flag.note.empty()) text += fmt::format("{}{}", text.empty() ? "" : "; ", flag.note);
  return text;
}

}  // namespace

std::span<const TrainerFlag> trainer_flags() { return kTrainerFlags; }

bool takes_trainer_flags(std::string_view command) {
  return command == "train" || command == "tune" || command == "eval" || command == "generate";
}

const TrainerFlag* find_trainer_flag(std::string_view name) {
  const std::string plain = with_underscores(name);
  const auto found = std::ranges::find(kTrainerFlags, plain, &TrainerFlag::name);
  if (found != kTrainerFlags.end()) return &*found;
  // transformers has --no_x for each flag x that is true by default.
  if (!plain.starts_with("no_")) return nullptr;
  const TrainerFlag* other = find_trainer_flag(std::string_view(plain).substr(3));
  return other != nullptr && other->kind == TrainerFlagKind::no_effect ? other : nullptr;
}

std::string trainer_flag_page() {
  std::string page = "| the Trainer's | here |\n|---|---|\n";
  for (const TrainerFlag& flag : kTrainerFlags) {
    page += fmt::format("| `--{}` | {} |\n", flag.name, effect_of(flag));
  }
  return page;
}

}  // namespace fullshard::cli
