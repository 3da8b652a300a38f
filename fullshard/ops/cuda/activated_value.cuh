// SPDX-License-Identifier: Apache-2.0
// Activations of one value, for the kernels that apply them.
#pragma once

#include "fullshard/ops/cuda/activation_rows.h"
#include "fullshard/ops/cuda/approximate.cuh"

namespace fullshard::ops {

template <class T>
__device__ __forceinline__ float logistic(float x) {
  if constexpr (sizeof(T) == 4) {
    return 1.0f / (1.0f + expf(-x));
  } else {
    return reciprocal(1.0f + power_of_two(-kLog2OfE * x));
  }
}

struct ValueAndSlope {
  float value, slope;
};

// The normal distribution: the share of it below x, and its density there.
struct Normal {
  float share, density;
};

// For 16 bits by a polynomial times the density (Abramowitz and Stegun, 7.1.26), which the slope
// needs anyway: within 3e-7, and below zero nearer to the true share than 1 + erf, which is the
// difference of two numbers there.
template <class T>
__device__ __forceinline__ Normal normal_at(float x) {
  constexpr float kDensityAtZero = 0.39894228f, kRootOfHalf = 0.70710678f;
  if constexpr (sizeof(T) == 4) {
    return {0.5f * (1.0f + erff(x * kRootOfHalf)), kDensityAtZero * expf(-0.5f * x * x)};
  } else {
    const float bell = power_of_two(-0.5f * kLog2OfE * (x * x));
    const float t = reciprocal(fmaf(0.3275911f * kRootOfHalf, fabsf(x), 1.0f));
    float sum = 0.5f * 1.061405429f;
    sum = fmaf(sum, t, -0.5f * 1.453152027f);
    sum = fmaf(sum, t, 0.5f * 1.421413741f);
    sum = fmaf(sum, t, -0.5f * 0.284496736f);
    sum = fmaf(sum, t, 0.5f * 0.254829592f);
    const float beyond = sum * t * bell;
    return {x < 0 ? beyond : 1.0f - beyond, kDensityAtZero * bell};
  }
}

template <class T, RowActivation kKind>
__device__ __forceinline__ ValueAndSlope activated(float x) {
  if constexpr (kKind == RowActivation::relu) {
    return {x > 0 ? x : 0.0f, x > 0 ? 1.0f : 0.0f};
  } else if constexpr (kKind == RowActivation::silu) {
    const float share = logistic<T>(x);
    const float value = x * share;
    return {value, fmaf(value, 1.0f - share, share)};
  } else if constexpr (kKind == RowActivation::gelu) {
    const auto [share, density] = normal_at<T>(x);
    return {x * share, fmaf(x, density, share)};
  } else {
    // (1 + tanh(u)) / 2 is the logistic function of 2u.
    constexpr float kFactor = 2.0f * 0.79788456f, kCubic = 0.044715f;
    const float square = x * x;
    const float share = logistic<T>(x * fmaf(square, kFactor * kCubic, kFactor));
    const float inner = fmaf(square, 3.0f * kFactor * kCubic, kFactor);
    const float value = x * share;
    return {value, fmaf(value * (1.0f - share), inner, share)};
  }
}

// Where the kind is known at run time only.
template <class T>
__device__ __forceinline__ float activated_value(float x, RowActivation kind) {
  switch (kind) {
    case RowActivation::gelu:
      return activated<T, RowActivation::gelu>(x).value;
    case RowActivation::gelu_tanh:
      return activated<T, RowActivation::gelu_tanh>(x).value;
    case RowActivation::relu:
      return activated<T, RowActivation::relu>(x).value;
    default:
      return activated<T, RowActivation::silu>(x).value;
  }
}

}  // namespace fullshard::ops
