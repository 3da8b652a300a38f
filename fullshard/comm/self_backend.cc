// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/self_backend.h"

#include <ATen/ops/empty.h>

#include "fullshard/comm/huge_pages.h"

namespace fullshard::comm {

Work SelfBackend::all_gather(const Call&, const at::Tensor& rows, const at::Tensor& shard) {
  if (rows.data_ptr() != shard.data_ptr()) rows.select(0, 0).copy_(shard);
  return {};
}

// The sum of one rank is its value, and average multiplies by one: only conversion and accumulation
// remain. Torch adds 16-bit values in fp32 and rounds once, as the other backends do.
Work SelfBackend::reduce_scatter(const Call&, const at::Tensor& shard, const at::Tensor& rows,
                                 const ReduceOptions& options) {
  if (options.accumulate) {
    shard.add_(rows.select(0, 0));
  } else if (rows.data_ptr() != shard.data_ptr()) {
    shard.copy_(rows.select(0, 0));
  }
  return {};
}

Work SelfBackend::all_to_all(const Call&, const at::Tensor& received, const at::Tensor& sent) {
  received.copy_(sent);
  return {};
}

Work SelfBackend::broadcast(const Call&, const at::Tensor&, int) { return {}; }

void SelfBackend::barrier(const Call&) {}

at::Tensor SelfBackend::allocate(int64_t numel, at::ScalarType dtype) {
  auto memory = at::empty({numel}, at::TensorOptions().dtype(dtype));
  wish_for_huge_pages(static_cast<std::byte*>(memory.data_ptr()),
                      static_cast<int64_t>(memory.nbytes()));
  return memory;
}

}  // namespace fullshard::comm
