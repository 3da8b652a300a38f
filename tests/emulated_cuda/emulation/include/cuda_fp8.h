// SPDX-License-Identifier: Apache-2.0
// In the place of CUDA's header.
#pragma once

#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <cuda_runtime.h>

enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
using __nv_fp8x2_storage_t = uint16_t;

// The first in the lower byte. What is too large becomes the largest number, NaN stays.
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 values, __nv_saturation_t,
                                                     __nv_fp8_interpretation_t format) {
  const auto byte_of = [format](float value) -> uint8_t {
    const float most = format == __NV_E4M3 ? 448.0f : 57344.0f;
    const float bounded = value > most ? most : (value < -most ? -most : value);
    return format == __NV_E4M3 ? c10::Float8_e4m3fn(bounded).x : c10::Float8_e5m2(bounded).x;
  };
  return static_cast<uint16_t>(byte_of(values.x) | byte_of(values.y) << 8);
}
