// SPDX-License-Identifier: Apache-2.0
// The main settings of a Plan in one line, explicit or default.
#pragma once

#include <cstdint>
#include <string>

#include "fullshard/config/plan.h"

namespace fullshard::config {

// "FULL_SHARD, fp32, AdamW with lr 5e-05 by WarmupDecayLR, 8 examples × 2 ranks = 16 per step,
// gradients clipped at 1"
std::string headline(const Plan& plan, int64_t ranks);

}  // namespace fullshard::config
