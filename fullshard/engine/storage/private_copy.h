// SPDX-License-Identifier: Apache-2.0
// What a write scope changes where the full buffer outlives it: a scope that fails leaves no trace.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/memory/pool.h"

namespace fullshard::engine {

class PrivateCopy {
 public:
  void open(memory::Pool& pool, const at::Tensor& full);  // takes its values
  void close() { block_ = {}; }

  // The copy while it is open, else `full`.
  at::Tensor in_place_of(const at::Tensor& full) const {
    return block_ ? block_.as(full.numel(), full.scalar_type()) : full;
  }

 private:
  memory::Block block_;
};

}  // namespace fullshard::engine
