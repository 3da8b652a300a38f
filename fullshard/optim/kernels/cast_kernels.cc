// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/kernels/cast_kernels.h"

#include <type_traits>

#include "fullshard/base/error.h"
#include "fullshard/base/float_halves.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/kernels/narrow_floats.h"

namespace fullshard::optim {
namespace {

template <class Real, class Stored>
FULLSHARD_VECTORISED void load_array(Real* __restrict to, const Stored* __restrict from,
                                     int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) to[i] = static_cast<Real>(widened(from[i]));
}

template <class Stored, class Real>
FULLSHARD_VECTORISED void store_array(Stored* __restrict to, const Real* __restrict from,
                                      int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    if constexpr (std::is_same_v<Stored, double>) {
      to[i] = from[i];
    } else {
      narrow(static_cast<float>(from[i]), to[i]);
    }
  }
}

FULLSHARD_VECTORISED
void store_stochastic_array(uint16_t* __restrict to, const float* __restrict from, int64_t numel,
                            RoundingKey key, uint64_t first) {
  for (int64_t i = 0; i < numel; ++i) {
    to[i] = round_stochastically(from[i], random_bits(key, first + static_cast<uint64_t>(i)));
  }
}

FULLSHARD_VECTORISED
void join_array(float* __restrict to, const uint16_t* __restrict nearest,
                const uint16_t* __restrict lower, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) to[i] = base::joined({nearest[i], lower[i]});
}

FULLSHARD_VECTORISED
void halve_array(uint16_t* __restrict nearest, uint16_t* __restrict lower,
                 const float* __restrict from, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    const auto halves = base::halves_of(from[i]);
    nearest[i] = halves.nearest;
    lower[i] = halves.lower;
  }
}

[[noreturn]] void refuse(c10::ScalarType dtype) {
  fail("optimizers keep values in float32, float64, bfloat16 or float16, not in {}",
       c10::toString(dtype));
}

// Calls `use` with a null pointer of the type that holds elements of `dtype`.
template <class Use>
void with_type(c10::ScalarType dtype, const Use& use) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return use(static_cast<float*>(nullptr));
    case c10::ScalarType::Double:
      return use(static_cast<double*>(nullptr));
    case c10::ScalarType::BFloat16:
      return use(static_cast<Bf16*>(nullptr));
    case c10::ScalarType::Half:
      return use(static_cast<Fp16*>(nullptr));
    default:
      refuse(dtype);
  }
}

}  // namespace

template <class Real>
void load(Real* to, const Elements& from, int64_t numel) {
  with_type(from.dtype, [&]<class Stored>(Stored*) {
    load_array(to, static_cast<const Stored*>(from.data), numel);
  });
}

template <class Real>
void store(const Elements& to, const Real* from, int64_t numel) {
  with_type(to.dtype, [&]<class Stored>(Stored*) {
    store_array(static_cast<Stored*>(to.data), from, numel);
  });
}

void store_stochastically(void* to, const float* from, int64_t numel, const RoundingKey& key,
                          int64_t first) {
  store_stochastic_array(static_cast<uint16_t*>(to), from, numel, key,
                         static_cast<uint64_t>(first));
}

void load_halves(float* to, const void* nearest, const uint16_t* lower, int64_t numel) {
  join_array(to, static_cast<const uint16_t*>(nearest), lower, numel);
}

void store_halves(void* nearest, uint16_t* lower, const float* from, int64_t numel) {
  halve_array(static_cast<uint16_t*>(nearest), lower, from, numel);
}

template void load<float>(float*, const Elements&, int64_t);
template void load<double>(double*, const Elements&, int64_t);
template void store<float>(const Elements&, const float*, int64_t);
template void store<double>(const Elements&, const double*, int64_t);

}  // namespace fullshard::optim
