// SPDX-License-Identifier: Apache-2.0
// The Trainer's schedules that have arguments of their own (its lr_scheduler_kwargs), by the
// formulas of transformers 5.23.0. L is the optimizer's rate, W the warm-up, T the run, and
// p = (step - W) / max(1, T - W). Where nothing else is said the warm-up is step / W.
//   polynomial            ((L - lr_end) (1 - p)^power + lr_end) / L, after T lr_end / L
//   cosine_with_restarts  (1 + cos(pi frac(num_cycles p))) / 2, after T 0
//   inverse_sqrt          1 / sqrt((step - W + timescale) / timescale)
//   cosine_with_min_lr    r + (1 - r) (1 + cos(2 pi num_cycles p)) / 2, r = min_lr / L
//   cosine_warmup_with_min_lr  the same one step further; the warm-up is (step + 1) / W, or from
//                         warmup_lr_rate up to 1
//   warmup_stable_decay   a warm-up and a decay of the named shape, between min_lr_ratio and 1, and
//                         1 between them
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fullshard/optim/schedules/lr_schedule.h"

namespace fullshard {

struct PolynomialOptions {
  int64_t num_warmup_steps = 0;
  std::optional<int64_t> num_training_steps = {};  // required
  double lr_end = 1e-7;                            // below the optimizer's rate
  double power = 1.0;
};

struct CosineWithRestartsOptions {
  int64_t num_warmup_steps = 0;
  std::optional<int64_t> num_training_steps = {};  // required
  int64_t num_cycles = 1;
};

struct InverseSqrtOptions {
  int64_t num_warmup_steps = 0;
  std::optional<int64_t> timescale = {};  // absent: the warm-up, or 10,000 without one
};

// One of min_lr and min_lr_rate is required.
struct CosineWithMinLrOptions {
  int64_t num_warmup_steps = 0;
  std::optional<int64_t> num_training_steps = {};  // required
  double num_cycles = 0.5;
  std::optional<double> min_lr = {};
  std::optional<double> min_lr_rate = {};     // of the optimizer's rate
  std::optional<double> warmup_lr_rate = {};  // cosine_warmup_with_min_lr
};

struct WarmupStableDecayOptions {
  int64_t num_warmup_steps = 0;
  std::optional<int64_t> num_decay_steps = {};     // required
  std::optional<int64_t> num_training_steps = {};  // required without num_stable_steps
  std::optional<int64_t> num_stable_steps = {};    // absent: what the others leave
  std::string warmup_type = "linear";              // or cosine, 1-sqrt
  std::string decay_type = "cosine";               // or linear, 1-sqrt
  double min_lr_ratio = 0.0;
  double num_cycles = 0.5;
};

std::unique_ptr<LrSchedule> make_polynomial_schedule(const PolynomialOptions& options);
std::unique_ptr<LrSchedule> make_cosine_with_restarts(const CosineWithRestartsOptions& options);
std::unique_ptr<LrSchedule> make_inverse_sqrt_schedule(const InverseSqrtOptions& options);
std::unique_ptr<LrSchedule> make_cosine_with_min_lr(const CosineWithMinLrOptions& options);
std::unique_ptr<LrSchedule> make_cosine_warmup_with_min_lr(const CosineWithMinLrOptions& options);
std::unique_ptr<LrSchedule> make_warmup_stable_decay(const WarmupStableDecayOptions& options);

}  // namespace fullshard
