// SPDX-License-Identifier: Apache-2.0
// The loop by which memory is measured.
#pragma once

#include <cstdint>

namespace fullshard::tiers {

void triad(double* a, const double* b, const double* c, double s, int64_t numel);

}  // namespace fullshard::tiers
