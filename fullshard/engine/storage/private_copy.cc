// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/private_copy.h"

#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <utility>

namespace fullshard::engine {

void PrivateCopy::open(memory::Pool& pool, const at::Tensor& full) {
  at::NoGradGuard no_grad;
  auto block = pool.take(static_cast<int64_t>(full.nbytes()), tiers::Purpose::parameters);
  block.as(full.numel(), full.scalar_type()).copy_(full);
  block_ = std::move(block);
}

}  // namespace fullshard::engine
