// SPDX-License-Identifier: Apache-2.0
// What other programs save of a run in addition to tensors: the loss scale of fp16, and how far the
// schedule of the learning rate has come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/formats/pickle/pickle_value.h"

namespace fullshard::formats {

struct SavedLossScale {
  bool is_dynamic = true;  // false: `scale` alone means something
  double scale = 1;
  double factor = 2;  // by which it changes
  // As DeepSpeed counts: updates done, and the one that overflowed last.
  int64_t iteration = 0;
  int64_t last_overflow = -1;
  int hysteresis = 0;  // overflows until it is lowered; 0: not said
};

// DeepSpeed's LossScaler or DynamicLossScaler. Nothing: something else. Invalid numbers are
// errors of the kind input that begin with `where`.
std::optional<SavedLossScale> deepspeed_loss_scale(const PickleValue& scaler,
                                                   const std::string& where);
// The state_dict of torch's GradScaler. Nothing: it was switched off, or is something else. It
// doubles after as many more good steps as there.
std::optional<SavedLossScale> grad_scaler_loss_scale(const PickleValue& state,
                                                     const std::string& where);

// Steps of a schedule, by the state_dict of one of DeepSpeed's (last_batch_iteration) or torch's
// (last_epoch). Nothing: neither.
std::optional<int64_t> schedule_steps(const PickleValue& state, const std::string& where);

}  // namespace fullshard::formats
