// SPDX-License-Identifier: Apache-2.0
// How often something happens in a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fullshard {

// Never, unless one of them is set.
struct StepInterval {
  int64_t steps = 0;
  double share = 0;  // of all steps of the run
  bool is_epoch = false;

  bool is_set() const { return steps > 0 || share > 0 || is_epoch; }
  // Steps in a run; at least one, or 0 for never.
  int64_t steps_of(int64_t total_steps, int64_t steps_per_epoch) const;

  // "100", "epoch", or "0.1" for a tenth of the run; nullopt for any other text.
  static std::optional<StepInterval> parse(std::string_view text);
};

}  // namespace fullshard
