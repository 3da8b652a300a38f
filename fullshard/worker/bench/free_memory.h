// SPDX-License-Identifier: Apache-2.0
// Checks that a measurement has the memory that it needs, before it allocates any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace fullshard::worker {

// Free memory of the device; of the host, within the limits of control groups, if that is the
// device.
int64_t free_bytes(at::Device device);

// An Error (kind no_fit) with both figures if it is not available. `what` names the command and
// what it holds: "bench comm: 2 ranks"; `change` says what makes it less.
void check_free(std::string_view what, int64_t needed, at::Device device, std::string_view change);

}  // namespace fullshard::worker
