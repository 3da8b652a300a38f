// SPDX-License-Identifier: Apache-2.0
// Values between the dtypes that are stored and the one that is computed in. `Real` is float or
// double.
#pragma once

#include <cstdint>

#include "fullshard/optim/kernels/piece_elements.h"

namespace fullshard::optim {

// numel values, widened or narrowed.
template <class Real>
void load(Real* to, const Elements& from, int64_t numel);

// Rounded to the nearest, ties to even, as torch's copy_ does it.
template <class Real>
void store(const Elements& to, const Real* from, int64_t numel);

// To bf16; `first` is the index of the first element in its tensor.
void store_stochastically(void* to, const float* from, int64_t numel, const RoundingKey& key,
                          int64_t first);

// Masters in halves (base/float_halves): joined, and cut again.
void load_halves(float* to, const void* nearest, const uint16_t* lower, int64_t numel);
void store_halves(void* nearest, uint16_t* lower, const float* from, int64_t numel);

}  // namespace fullshard::optim
