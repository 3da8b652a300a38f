// The host's ordered sum (ordered_sum.h) on a GPU, with its bits: one pass over rows that lie
// anywhere in device memory.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "fullshard/comm/communicator.h"

namespace fullshard {

inline constexpr int kMaxDeviceRows = 64;

struct DeviceSum {
  ReduceOp op = ReduceOp::sum;
  const void* addend = nullptr;  // added at the end, of the output's dtype; may be the output
};

// 1 to kMaxDeviceRows rows. `stream` is a cudaStream_t. False for dtypes that cannot be summed.
bool device_sum(void* output, c10::ScalarType output_dtype, std::span<const void* const> rows,
                c10::ScalarType rows_dtype, int64_t numel, const DeviceSum& options, void* stream);

}  // namespace fullshard
