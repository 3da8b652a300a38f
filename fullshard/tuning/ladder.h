// SPDX-License-Identifier: Apache-2.0
// The order in which memory is saved, from the fastest to the most frugal, as the guides to ZeRO
// give it: batch 1; recomputation; ZeRO-1, 2, 2 with optimizer offload, 3, 3 with parameter
// offload, 3 with both; 16 bit; a disk. Each rung keeps what those before it changed, except for
// the offload of a lower stage.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fullshard/tuning/rung.h"

namespace fullshard::tuning {

// The hardware, and what flags have fixed: rungs that would change that are skipped.
struct LadderOptions {
  int ranks = 1;
  bool on_gpus = false;
  std::optional<int> stage{};
  bool keeps_recompute = false;  // it is switched on
  bool keeps_offload = false;
  bool keeps_precision = false;
  bool is_sixteen_bit = false;  // already
  int64_t first_batch = 1;
};

// The fastest first. Rungs that do not apply here are listed, with the reason.
std::vector<Rung> ladder(const LadderOptions& options);

}  // namespace fullshard::tuning
