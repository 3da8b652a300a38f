// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's schedules that begin with a warm-up, with its keys, defaults and quirks (0.19.8):
//   t is the step minus one, N is warmup_num_steps (2 at least), T is total_num_steps
//   warm-up, t < N:  g = ln(t + 1) / ln(N), or t / N when linear
//   WarmupLR         min + g (max - min), then max
//   WarmupDecayLR    the same, then g = max(0, (T - t) / max(1, T - N))
//   WarmupCosineLR   optimizer's rate times: r + g (1 - r), then
//                    c + (1 - c) (1 + cos(pi min(1, (t - N + 1) / max(1, T - N)))) / 2
// Step 0 has the lower rate, and so has step 1, except that WarmupCosineLR's step 0 has 0 whatever
// warmup_min_ratio says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "fullshard/optim/schedules/lr_schedule.h"

namespace fullshard {

enum class WarmupType { log, linear };

// DeepSpeed takes an unknown type for log with a warning; here it is an error.
WarmupType warmup_type_from(std::string_view name);

struct WarmupLrOptions {
  double warmup_min_lr = 0.0;
  std::optional<double> warmup_max_lr = {};  // absent: the optimizer's rate
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::log;
};

struct WarmupDecayLrOptions {
  std::optional<int64_t> total_num_steps = {};  // required
  double warmup_min_lr = 0.0;
  std::optional<double> warmup_max_lr = 0.001;  // absent: the optimizer's rate
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::log;
};

struct WarmupCosineLrOptions {
  std::optional<int64_t> total_num_steps = {};  // required
  double warmup_min_ratio = 0.0;
  int64_t warmup_num_steps = 1000;
  double cos_min_ratio = 0.0001;
  WarmupType warmup_type = WarmupType::log;
};

std::unique_ptr<LrSchedule> make_warmup_lr(const WarmupLrOptions& options = {});
std::unique_ptr<LrSchedule> make_warmup_decay_lr(const WarmupDecayLrOptions& options);
std::unique_ptr<LrSchedule> make_warmup_cosine_lr(const WarmupCosineLrOptions& options);

}  // namespace fullshard
