// SPDX-License-Identifier: Apache-2.0
// N consecutive elements of an array in registers: first as they are stored, so that many loads can
// be in flight, then widened. N is 4, or 1 where addresses are odd.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "fullshard/base/float_halves.h"
#include "fullshard/optim/cuda/device_piece.h"
#include "fullshard/optim/kernels/narrow_floats.h"
#include "fullshard/optim/kernels/stochastic_rounding.h"

namespace fullshard::optim {

// An array whose dtype is known at run time only.
struct AnyStored {};

template <class Stored>
constexpr StoredAs kStoredAs = std::is_same_v<Stored, float>  ? StoredAs::fp32
                               : std::is_same_v<Stored, Bf16> ? StoredAs::bf16
                               : std::is_same_v<Stored, Fp16> ? StoredAs::fp16
                                                              : StoredAs::fp64;

// Four elements are one access of 8 or 16 bytes, or two of 16 for fp64.
template <class Word>
struct WordOf;
template <>
struct WordOf<float> {
  using Type = float4;
};
template <>
struct WordOf<Bf16> {
  using Type = uint2;
};
template <>
struct WordOf<Fp16> {
  using Type = uint2;
};

template <class Stored, int N>
struct alignas(N * sizeof(Stored) < 16 ? N * sizeof(Stored) : 16) StoredElements {
  Stored values[N];
};

// Every array is read once and written once in a step: marked for the caches as the first to go.
template <class Word>
__device__ Word read_once(const Word* from) {
  return __ldcs(from);
}
template <class Word>
__device__ void write_once(Word* to, const Word& word) {
  __stcs(to, word);
}

template <class Stored, int N>
__device__ StoredElements<Stored, N> read_elements(const void* data, int64_t i) {
  StoredElements<Stored, N> elements;
  const auto* from = static_cast<const Stored*>(data) + i;
  if constexpr (N == 1) {
    elements.values[0] = *from;
  } else if constexpr (std::is_same_v<Stored, double>) {
    const auto* words = reinterpret_cast<const double2*>(from);
    const double2 low = read_once(words), high = read_once(words + 1);
    elements = {{low.x, low.y, high.x, high.y}};
  } else {
    const auto word = read_once(reinterpret_cast<const typename WordOf<Stored>::Type*>(from));
    elements = __builtin_bit_cast(StoredElements<Stored, N>, word);
  }
  return elements;
}

template <class Stored, int N>
__device__ void write_elements(void* data, int64_t i, const StoredElements<Stored, N>& elements) {
  auto* to = static_cast<Stored*>(data) + i;
  if constexpr (N == 1) {
    *to = elements.values[0];
  } else if constexpr (std::is_same_v<Stored, double>) {
    auto* words = reinterpret_cast<double2*>(to);
    write_once(words, make_double2(elements.values[0], elements.values[1]));
    write_once(words + 1, make_double2(elements.values[2], elements.values[3]));
  } else {
    using Word = typename WordOf<Stored>::Type;
    write_once(reinterpret_cast<Word*>(to), __builtin_bit_cast(Word, elements));
  }
}

template <class Stored, int N, class Real>
__device__ StoredElements<Stored, N> narrowed(const Real (&values)[N]) {
  StoredElements<Stored, N> elements;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if constexpr (std::is_same_v<Stored, double>) {
      elements.values[k] = values[k];
    } else {
      narrow(static_cast<float>(values[k]), elements.values[k]);
    }
  }
  return elements;
}

template <class Stored, int N>
struct StoredVector {
  StoredElements<Stored, N> raw;

  __device__ static constexpr bool is(StoredAs, StoredAs asked) {
    return kStoredAs<Stored> == asked;
  }
  __device__ void load(const DeviceArray& array, int64_t i) {
    raw = read_elements<Stored, N>(array.data, i);
  }
  template <class Real>
  __device__ void widen(StoredAs, Real (&to)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) to[k] = static_cast<Real>(widened(raw.values[k]));
  }
  template <class Real>
  __device__ static void store(const DeviceArray& array, int64_t i, const Real (&values)[N]) {
    write_elements(array.data, i, narrowed<Stored, N>(values));
  }
};

// Masters in two arrays: their nearest bf16 values, and the rest.
struct InHalves {};

template <int N>
struct StoredVector<InHalves, N> {
  StoredElements<Bf16, N> nearest, lower;  // the bits of both

  __device__ static constexpr bool is(StoredAs, StoredAs asked) {
    return asked == StoredAs::lower_half;
  }
  __device__ void load(const DeviceArray& of_lower, const DeviceArray& of_nearest, int64_t i) {
    nearest = read_elements<Bf16, N>(of_nearest.data, i);
    lower = read_elements<Bf16, N>(of_lower.data, i);
  }
  __device__ void widen(StoredAs, float (&to)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      to[k] = base::joined(
          {static_cast<uint16_t>(nearest.values[k]), static_cast<uint16_t>(lower.values[k])});
    }
  }
  __device__ static void store(const DeviceArray& of_lower, const DeviceArray& of_nearest,
                               int64_t i, const float (&values)[N]) {
    StoredVector to;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const base::FloatHalves halves = base::halves_of(values[k]);
      to.nearest.values[k] = static_cast<Bf16>(halves.nearest);
      to.lower.values[k] = static_cast<Bf16>(halves.lower);
    }
    write_elements(of_nearest.data, i, to.nearest);
    write_elements(of_lower.data, i, to.lower);
  }
};

// The dtype is a uniform branch: all threads of a block work on one piece.
template <int N>
struct StoredVector<AnyStored, N> {
  union {
    StoredElements<double, N> fp64;
    StoredElements<float, N> fp32;
    StoredElements<Bf16, N> bf16;
    StoredElements<Fp16, N> fp16;
  };

  __device__ static bool is(StoredAs stored, StoredAs asked) { return stored == asked; }
  __device__ void load(const DeviceArray& array, int64_t i) {
    switch (array.stored) {
      case StoredAs::fp64:
        fp64 = read_elements<double, N>(array.data, i);
        break;
      case StoredAs::fp32:
        fp32 = read_elements<float, N>(array.data, i);
        break;
      default:
        bf16 = read_elements<Bf16, N>(array.data, i);  // or fp16: the bits are the same
    }
  }
  template <class Real>
  __device__ void widen(StoredAs stored, Real (&to)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      switch (stored) {
        case StoredAs::fp64:
          to[k] = static_cast<Real>(fp64.values[k]);
          break;
        case StoredAs::fp32:
          to[k] = static_cast<Real>(fp32.values[k]);
          break;
        case StoredAs::bf16:
          to[k] = static_cast<Real>(widened(bf16.values[k]));
          break;
        default:
          to[k] = static_cast<Real>(widened(fp16.values[k]));
      }
    }
  }
  template <class Real>
  __device__ static void store(const DeviceArray& array, int64_t i, const Real (&values)[N]) {
    switch (array.stored) {
      case StoredAs::fp64:
        return write_elements(array.data, i, narrowed<double, N>(values));
      case StoredAs::fp32:
        return write_elements(array.data, i, narrowed<float, N>(values));
      case StoredAs::bf16:
        return write_elements(array.data, i, narrowed<Bf16, N>(values));
      default:
        return write_elements(array.data, i, narrowed<Fp16, N>(values));
    }
  }
};

}  // namespace fullshard::optim
