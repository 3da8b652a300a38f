// SPDX-License-Identifier: Apache-2.0
// What a configuration means that names an optimizer without its settings, or none.
#pragma once

#include "fullshard/optim/adagrad.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/lion.h"

namespace fullshard {

// No optimizer section: the Trainer's AdamW (TrainingArguments of transformers 5).
AdamWOptions trainer_adamw_defaults();

// DeepSpeed 0.19's "Adam" and "AdamW": both decouple weight decay unless adam_w_mode is false.
AdamWOptions deepspeed_adam_defaults();
AdagradOptions deepspeed_adagrad_defaults();
LambOptions deepspeed_lamb_defaults();
LionOptions deepspeed_lion_defaults();

// torch.optim.Adam.
AdamWOptions torch_adam_defaults();

}  // namespace fullshard
