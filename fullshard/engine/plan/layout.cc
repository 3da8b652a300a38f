// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"

namespace fullshard::engine {

int64_t TensorSpec::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Layout::Layout(const std::vector<TensorSpec>& tensors, int num_shards, int64_t align)
    : num_shards_(num_shards) {
  check(num_shards >= 1, "layout: {} shards, expected at least one", num_shards);
  check(align >= 1, "layout: alignment of {} elements, expected at least one", align);
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    offset = round_up(offset, align);
    const int64_t numel = tensor.numel();
    slots_.push_back({tensor.name, tensor.shape, offset, numel});
    offset += numel;
    tensor_numel_ += numel;
  }
  numel_ = round_up(offset, num_shards * align);
}

std::vector<Piece> Layout::pieces(int shard) const {
  const int64_t first = shard * shard_numel();
  const int64_t last = first + shard_numel();
  std::vector<Piece> result;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto& slot = slots_[i];
    const int64_t begin = std::max(first, slot.offset);
    const int64_t end = std::min(last, slot.end());
    if (begin >= end) continue;
    result.push_back({static_cast<int>(i), begin - slot.offset, end - slot.offset, begin - first});
  }
  return result;
}

std::vector<Interval> Layout::padding() const {
  std::vector<Interval> result;
  int64_t end = 0;
  for (const auto& slot : slots_) {
    if (slot.offset > end) result.push_back({end, slot.offset});
    end = std::max(end, slot.end());
  }
  if (numel_ > end) result.push_back({end, numel_});
  return result;
}

std::vector<int> round_robin_order(int num_tensors, int num_shards) {
  std::vector<int> order;
  order.reserve(num_tensors);
  for (int first = 0; first < num_shards; ++first) {
    for (int i = first; i < num_tensors; i += num_shards) order.push_back(i);
  }
  return order;
}

}  // namespace fullshard::engine
