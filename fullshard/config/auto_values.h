// SPDX-License-Identifier: Apache-2.0
// What "auto" stands for, by the rules of Hugging Face's Trainer (transformers 5.22).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/config/schema/settings.h"

namespace fullshard {

// The Trainer's arguments with its defaults, and what is known of model and run.
struct AutoInputs {
  int64_t per_device_train_batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  double max_grad_norm = 1.0;
  double learning_rate = 5e-5;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double weight_decay = 0;
  int64_t warmup_steps = 0;
  bool fp16 = false;
  bool bf16 = false;
  std::optional<int64_t> hidden_size{};         // of the model
  std::optional<int64_t> num_training_steps{};  // of the run
};

// Replaces each "auto" of a DeepSpeed file that the inputs decide, with origin "derived". File and
// flags take precedence over the inputs: a schedule's rate follows the optimizer's. The total batch
// stays: it depends on the others, see resolve_batch().
void resolve_auto(config::Settings& deepspeed, const AutoInputs& inputs);

// Sets the three batch keys for that many ranks and derives the missing ones. Problems name the
// keys.
void resolve_batch(config::Settings& deepspeed, const AutoInputs& inputs, int64_t ranks,
                   Problems& problems);

// Reports batch sizes that fit no number of ranks.
void check_batch_for_any_ranks(const config::Settings& deepspeed, Problems& problems);

// The ranks that make the three given batch sizes agree, if there is such a number.
std::optional<int64_t> ranks_of_batch(const config::Settings& deepspeed);

// Keys that are still "auto" where "auto" is not a value of their own.
std::vector<std::string> unresolved_keys(const config::Settings& settings);

// What must be known to resolve a key that is still "auto".
enum class AutoNeed { ranks, steps, hidden_size };
AutoNeed need_of(std::string_view path);
std::string_view name_of(AutoNeed need);

}  // namespace fullshard
