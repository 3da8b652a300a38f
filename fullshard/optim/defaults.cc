// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/defaults.h"

namespace fullshard {

AdamWOptions trainer_adamw_defaults() {
  return {.lr = 5e-5, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0};
}

AdamWOptions deepspeed_adam_defaults() {
  return {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0};
}

AdagradOptions deepspeed_adagrad_defaults() {
  return {.lr = 1e-2, .weight_decay = 0, .epsilon = 1e-10};
}

LambOptions deepspeed_lamb_defaults() {
  return {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0};
}

LionOptions deepspeed_lion_defaults() {
  return {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0};
}

AdamWOptions torch_adam_defaults() {
  return {.lr = 1e-3,
          .beta1 = 0.9,
          .beta2 = 0.999,
          .epsilon = 1e-8,
          .weight_decay = 0,
          .adam_w_mode = false};
}

}  // namespace fullshard
