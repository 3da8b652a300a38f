// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/triad_kernels.h"

namespace fullshard::tiers {

void triad(double* __restrict a, const double* __restrict b, const double* __restrict c, double s,
           int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) a[i] = b[i] + s * c[i];
}

}  // namespace fullshard::tiers
