// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fullshard/optim/kernels/adamw_rule.h"
#include "fullshard/optim/kernels/piece_elements.h"

namespace fullshard::optim {

// States: moment, variance. The same bits for every cut and number of threads.
void adamw_step(const AdamWStep& step, const PieceElements& piece);
void adamw_step(const AdamWStep& step, float* parameters, const float* gradients, float* moments,
                float* variances, int64_t numel);

}  // namespace fullshard::optim
