// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/schema/synonyms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fullshard/config/schema/value_check.h"

namespace fullshard::config {
namespace {

constexpr std::string_view kMicroName = "train_micro_batch_size_per_gpu";
constexpr std::string_view kAccumulationName = "gradient_accumulation_steps";

constexpr std::array kSynonyms = {
    Synonym{"learning_rate", "lr", "lr"},
    Synonym{"max_lr", "lr", "lr"},
    Synonym{"batch_size", "micro_batch", kMicroName},
    Synonym{"train_batch_size", "micro_batch", ""},
    Synonym{"micro_batch_size", "micro_batch", kMicroName},
    Synonym{"per_device_train_batch_size", "micro_batch", kMicroName},
    Synonym{"per_gpu_train_batch_size", "micro_batch", kMicroName},
    Synonym{"max_steps", "steps", ""},
    Synonym{"num_steps", "steps", ""},
    Synonym{"total_steps", "steps", "total_num_steps"},
    Synonym{"train_steps", "steps", ""},
    Synonym{"num_training_steps", "steps", "total_num_steps"},
    Synonym{"epochs", "epochs", ""},
    Synonym{"epoch", "epochs", ""},
    Synonym{"num_epochs", "epochs", ""},
    Synonym{"num_train_epochs", "epochs", ""},
    Synonym{"accumulation_steps", "accumulate", kAccumulationName},
    Synonym{"grad_accumulation", "accumulate", kAccumulationName},
    Synonym{"gradient_accumulation", "accumulate", kAccumulationName},
    Synonym{"gradient_accumulation_steps", "accumulate", ""},
    Synonym{"max_grad_norm", "clip", "gradient_clipping"},
    Synonym{"grad_clip", "clip", "gradient_clipping"},
    Synonym{"clip_grad_norm", "clip", "gradient_clipping"},
    Synonym{"gradient_clipping", "clip", ""},
    Synonym{"warmup_steps", "warmup", "warmup_num_steps"},
    Synonym{"num_warmup_steps", "warmup", "warmup_num_steps"},
    Synonym{"lr_scheduler", "schedule", ""},
    Synonym{"lr_scheduler_type", "schedule", ""},
    Synonym{"scheduler", "schedule", ""},
    Synonym{"optim", "optimizer", ""},
    Synonym{"wd", "weight_decay", "weight_decay"},
    Synonym{"beta1", "adam_beta1", "betas"},
    Synonym{"beta2", "adam_beta2", "betas"},
    Synonym{"epsilon", "adam_epsilon", "eps"},
    Synonym{"output_dir", "output", ""},
    Synonym{"seq_length", "sequence_length", ""},
    Synonym{"seq_len", "sequence_length", ""},
    Synonym{"max_seq_length", "sequence_length", ""},
    Synonym{"block_size", "sequence_length", ""},
    Synonym{"save_steps", "save_every", ""},
    Synonym{"eval_steps", "eval_every", ""},
    Synonym{"logging_steps", "log_every", ""},
    Synonym{"save_total_limit", "keep", ""},
    Synonym{"resume_from_checkpoint", "resume", ""},
    Synonym{"model_name_or_path", "model", ""},
    Synonym{"train_file", "data", ""},
    Synonym{"dataset", "data", ""},
    Synonym{"validation_file", "eval_data", ""},
    Synonym{"tokenizer_name", "tokenizer", ""},
    Synonym{"mixed_precision", "precision", ""},
    Synonym{"dtype", "precision", "mixed_precision"},
    Synonym{"bf16", "precision", "mixed_precision"},
    Synonym{"fp16", "precision", "mixed_precision"},
    Synonym{"sharding_strategy", "strategy", ""},
    Synonym{"stage", "zero_stage", ""},
    Synonym{"num_ranks", "ranks", "num_processes"},
    Synonym{"world_size", "ranks", "num_processes"},
    Synonym{"nproc", "ranks", "num_processes"},
    Synonym{"np", "ranks", "num_processes"},
};

std::string key_for(const Schema& schema, std::string_view section, std::string_view key) {
  const std::string beside =
      section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
  if (!schema.find(beside).empty()) return beside;
  if (!schema.find(key).empty()) return std::string(key);
  const auto places = schema.places_of(key);
  return places.empty() ? "" : places.front();
}

}  // namespace

const Synonym* find_synonym(std::string_view word) {
  const auto found = std::find_if(kSynonyms.begin(), kSynonyms.end(), [&](const Synonym& synonym) {
    return synonym.word == plain_name(word);
  });
  return found == kSynonyms.end() ? nullptr : &*found;
}

KeySuggestion suggest_synonym(const Schema& schema, std::string_view section,
                              std::string_view name) {
  const Synonym* synonym = find_synonym(name);
  if (synonym == nullptr) return {};
  std::string key = synonym->key.empty() ? "" : key_for(schema, section, synonym->key);
  if (!key.empty()) return {std::move(key), true};
  std::string flag(synonym->flag);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return {fmt::format("use train --{}", flag), false};
}

}  // namespace fullshard::config
