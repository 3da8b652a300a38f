// SPDX-License-Identifier: Apache-2.0
// The schedules of Hugging Face's Trainer, by the formulas of transformers 5.22.0's get_scheduler.
// All are factors of the optimizer's rate:
//   warm-up, step < W:  step / W
//   constant            1, without a warm-up
//   constant_with_warmup  then 1
//   linear              then max(0, (T - step) / max(1, T - W))
//   cosine              then max(0, (1 + cos(2 pi num_cycles (step - W) / max(1, T - W))) / 2)
// Unlike DeepSpeed's WarmupLR and WarmupDecayLR the warm-up is always linear and step 1 is not the
// second one at the lowest rate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "fullshard/optim/schedules/lr_schedule.h"

namespace fullshard {

struct ConstantWithWarmupOptions {
  int64_t num_warmup_steps = 0;
};

struct LinearOptions {
  int64_t num_warmup_steps = 0;
  std::optional<int64_t> num_training_steps = {};  // required
};

struct CosineOptions {
  int64_t num_warmup_steps = 0;
  std::optional<int64_t> num_training_steps = {};  // required
  double num_cycles = 0.5;                         // half a wave: down to 0 and no more
};

std::unique_ptr<LrSchedule> make_constant_schedule();
std::unique_ptr<LrSchedule> make_constant_with_warmup(const ConstantWithWarmupOptions& options);
std::unique_ptr<LrSchedule> make_linear_schedule(const LinearOptions& options);
std::unique_ptr<LrSchedule> make_cosine_schedule(const CosineOptions& options);

}  // namespace fullshard
