// SPDX-License-Identifier: Apache-2.0
// Whether a backward may overwrite what its forward kept: nobody else looks at the memory, and the
// graph goes when this backward is over.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::ops {

// `saved` as get_saved_variables() gave it, with no other handle made since.
bool is_last_use(const at::Tensor& saved);
// The backward that runs now is the graph's last.
bool is_last_backward();

}  // namespace fullshard::ops
