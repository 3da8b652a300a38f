// SPDX-License-Identifier: Apache-2.0
// Whether a measurement has the memory that it takes, before it takes any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace fullshard::worker {

// Of the device, or of the host and what control groups allow where that is the device.
int64_t free_bytes(at::Device device);

// An Error (kind no_fit) with both figures where it is not there. `what` names the command and what
// it holds: "bench comm: 2 ranks"; `change` says what makes it less.
void check_free(std::string_view what, int64_t needed, at::Device device, std::string_view change);

}  // namespace fullshard::worker
