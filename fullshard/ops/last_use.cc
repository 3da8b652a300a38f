// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/last_use.h"

#include <torch/csrc/autograd/graph_task.h>

namespace fullshard::ops {

bool is_last_backward() { return !torch::autograd::get_current_graph_task_keep_graph(); }

bool is_last_use(const at::Tensor& saved) {
  constexpr size_t kOwnHandles = 2;  // autograd's and the caller's
  return saved.use_count() <= kOwnHandles && saved.storage().use_count() == 1 && !saved.is_leaf() &&
         is_last_backward();
}

}  // namespace fullshard::ops
