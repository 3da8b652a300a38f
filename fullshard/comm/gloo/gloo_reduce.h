// SPDX-License-Identifier: Apache-2.0
// The reduction between ranks that all talk over gloo: an all-to-all, a local sum in order, and,
// where several ranks keep the same slice, a second all-to-all among them. Per rank that is a
// ring's volume. A small one is one message: everyone sends everything.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fullshard/comm/gloo/gloo_worker.h"

namespace fullshard::comm {

struct GlooReduction {
  int rank = 0;
  const std::vector<int>& hosts;  // of each rank of the group
  const ReduceOptions& options;
};

void gloo_reduce_scatter(const GlooTurn& turn, const at::Tensor& shard, const at::Tensor& rows,
                         const GlooReduction& reduction);

}  // namespace fullshard::comm
