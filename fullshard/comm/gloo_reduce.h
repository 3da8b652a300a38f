// The reduction over gloo: an all-to-all, a local sum in order, and, where several ranks keep the
// same slice, a second all-to-all among them. Per rank that is a ring's volume.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <vector>

#include "fullshard/comm/communicator.h"
#include "fullshard/comm/gloo_group.h"

namespace fullshard {

struct GlooReduction {
  int rank = 0;
  std::vector<int> hosts;  // of each rank of the group
  ReduceOptions options;
  std::chrono::milliseconds timeout{};
};

void gloo_reduce_scatter(GlooGroup& group, const at::Tensor& shard, const at::Tensor& rows,
                         const GlooReduction& reduction);

// A 1-D contiguous tensor as bytes.
at::Tensor as_bytes(const at::Tensor& line);

}  // namespace fullshard
