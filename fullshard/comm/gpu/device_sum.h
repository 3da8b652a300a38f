// SPDX-License-Identifier: Apache-2.0
// The host's ordered sum (ordered_sum.h) on a GPU, with its bits: one pass over rows that lie
// anywhere in device memory.
#pragma once

#include "fullshard/comm/gpu/exchanged_sum.h"
#include "fullshard/tensor/device_stream.h"

namespace fullshard::comm {

inline constexpr int kMaxDeviceRows = 64;

// 1 to kMaxDeviceRows rows. False for dtypes that cannot be summed.
bool device_sum(const RowSum& sum, tensor::DeviceStream stream);

}  // namespace fullshard::comm
