// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/leaving.h"

#include <utility>

namespace fullshard::memory {

void Leaving::hold(LaneMark copied, std::vector<at::Tensor> memory) {
  int64_t bytes = 0;
  for (const auto& tensor : memory) bytes += static_cast<int64_t>(tensor.nbytes());
  held_.push_back({std::move(copied), std::move(memory), bytes});
  bytes_ += bytes;
  while (bytes_ > most_bytes_ && held_.size() > 1) release_oldest();
}

void Leaving::release_oldest() {
  held_.front().copied.hold_caller();
  bytes_ -= held_.front().bytes;
  held_.pop_front();
}

void Leaving::release_all() {
  while (!held_.empty()) release_oldest();
}

}  // namespace fullshard::memory
