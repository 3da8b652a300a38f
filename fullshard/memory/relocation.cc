// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/relocation.h"

#include <utility>

namespace fullshard::memory {

void Relocation::move(Block& block) const {
  if (!block.is_of(from_)) return;
  auto moved = to_.take(block.bytes(), block.purpose());
  moved.as(block.bytes(), at::kByte).copy_(block.as(block.bytes(), at::kByte));
  block = std::move(moved);
}

void Relocation::move(at::Tensor& tensor, tiers::Purpose purpose) const {
  if (!tensor.defined()) return;
  auto moved = to_.allocate(tensor.numel(), tensor.scalar_type()).view(tensor.sizes());
  moved.copy_(tensor);
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  from_.ledger().drop(purpose, from_.tier(), bytes);
  to_.ledger().hold(purpose, to_.tier(), bytes);
  tensor = std::move(moved);
}

}  // namespace fullshard::memory
