// SPDX-License-Identifier: Apache-2.0
// The fp32 masters of values that are computed with in bf16, without storing those sixteen bits
// twice: `nearest` is what computation sees, `lower` the rest (base/float_halves).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "fullshard/memory/pool.h"
#include "fullshard/memory/relocation.h"

namespace fullshard::engine {

// fp32 to bf16 as halves have it: to the nearest, ties away from zero.
at::Tensor nearest_halves(const at::Tensor& values);

class MasterHalves {
 public:
  // Splits `master`, 1-D. `resting` is where its values lie in bf16 anyway; undefined: nowhere, and
  // `nearest` is memory for them. Each may lie on another tier than `master`.
  MasterHalves(const at::Tensor& master, const at::Tensor& resting, memory::Block nearest,
               memory::Block lower);

  const at::Tensor& nearest() const { return nearest_; }
  const at::Tensor& lower() const { return lower_; }  // int16, where it rests
  int64_t numel() const { return lower_.numel(); }

  void join_into(const at::Tensor& master) const;
  // The memory of both, to be used again; this is of no use then.
  std::pair<memory::Block, memory::Block> take_memory() {
    return {std::move(nearest_memory_), std::move(lower_memory_)};
  }
  at::Tensor joined(int64_t first, int64_t numel) const;
  // The memory of both moves; `resting` as given to the constructor, moved.
  void relocate(const memory::Relocation& relocation, const at::Tensor& resting);

 private:
  void join(int64_t begin, const at::Tensor& master) const;

  memory::Block nearest_memory_, lower_memory_;
  at::Tensor nearest_, lower_;
};

}  // namespace fullshard::engine
