// SPDX-License-Identifier: Apache-2.0
// Pieces of parameters as CUDA kernels find them in device memory. No torch here: CUDA sources
// include it.
//
//   blocks: | piece 0, chunk 0 | piece 0, chunk 1 | piece 1, chunk 0 | ...   one per thread block
//   pieces: | piece 0 | piece 1 | ...                                         addresses, settings
#pragma once

#include <cstdint>

#include "fullshard/optim/kernels/lamb_rule.h"

namespace fullshard::optim {

// Elements that one thread block updates. Fewer leave less to wait for at the end of a pass, more
// spare reading the table.
constexpr int64_t kDeviceChunk = 1024;

// `lower_half` is of masters whose other half is what is shown (base/float_halves).
enum class StoredAs : uint8_t { nothing, fp32, bf16, fp16, fp64, lower_half };

constexpr int64_t bytes_of(StoredAs stored) {
  switch (stored) {
    case StoredAs::nothing:
      return 0;
    case StoredAs::fp32:
      return 4;
    case StoredAs::fp64:
      return 8;
    default:
      return 2;
  }
}

struct DeviceArray {
  void* data = nullptr;
  StoredAs stored = StoredAs::nothing;

  bool operator==(const DeviceArray&) const = default;
};

struct DevicePiece {
  DeviceArray master;
  DeviceArray gradient;
  DeviceArray shown;
  DeviceArray states[2];  // nvcc wants no std::array in kernels
  int64_t numel = 0;
  int64_t first = 0;       // index of the first element in its tensor
  uint64_t name_hash = 0;  // keys its random numbers
  int32_t setting = 0;     // which of the settings of a step holds for it
  int32_t tensor = 0;      // its place among all trainable parameters
  int32_t first_block = 0;
  int32_t num_blocks = 0;
  bool is_aligned = false;  // four elements can be read at once from every array

  bool operator==(const DevicePiece&) const = default;
};

struct DeviceBlock {
  int32_t piece = 0;
  int32_t chunk = 0;  // of kDeviceChunk elements
};

// For which combinations there are kernels of their own; `any` reads dtypes at run time.
enum class DeviceStorage : uint8_t { fp32, fp32_in_halves, fp32_bf16_gradient, any, fp64 };

// So many settings travel with a launch, by value.
constexpr int kSettingsPerLaunch = 32;

// What one launch works on.
struct DeviceLaunch {
  const DevicePiece* pieces = nullptr;
  const DeviceBlock* blocks = nullptr;  // from the launch's first one on
  int64_t num_blocks = 0;
  int32_t first_setting = 0;
  int32_t num_settings = 0;
  int32_t num_states = 0;
  DeviceStorage storage = DeviceStorage::any;
  uint64_t rounding = 0;  // RoundingKey::of_step
  // Instead of the settings' clip, when only the device knows it; where it is not finite nothing is
  // changed.
  const double* factor = nullptr;
  const float* ratios = nullptr;   // LAMB's trust ratios, by tensor
  LambSquares* squares = nullptr;  // LAMB's first pass, by block of the launch
};

}  // namespace fullshard::optim
