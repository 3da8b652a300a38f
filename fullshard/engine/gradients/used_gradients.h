// SPDX-License-Identifier: Apache-2.0
// Gradients that were dropped while an update beside the caller still reads them: their memory is
// nobody else's before the update is done with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "fullshard/memory/pool.h"

namespace fullshard::engine {

class UsedGradients {
 public:
  // Either may be empty. Tensors stand in the ledger, and leave it with release().
  void keep(memory::Block block) {
    if (block) blocks_.push_back(std::move(block));
  }
  void keep(at::Tensor gradient) {
    if (gradient.defined()) tensors_.push_back(std::move(gradient));
  }

  // The caller's stream has come past the update.
  void release(Ledger& ledger) {
    for (const auto& gradient : tensors_) {
      ledger.drop(tiers::Purpose::gradients, tiers::Tier::device,
                  static_cast<int64_t>(gradient.nbytes()));
    }
    tensors_.clear();
    blocks_.clear();
  }

 private:
  std::vector<memory::Block> blocks_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace fullshard::engine
