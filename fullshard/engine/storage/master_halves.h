// SPDX-License-Identifier: Apache-2.0
// The fp32 masters of values that are computed with in bf16, without storing those sixteen bits
// twice: `nearest` is what computation sees, `lower` the rest (base/float_halves).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "fullshard/memory/pool.h"

namespace fullshard::engine {

// fp32 to bf16 as halves have it: to the nearest, ties away from zero.
at::Tensor nearest_halves(const at::Tensor& values);

class MasterHalves {
 public:
  // Splits `master`, 1-D. `resting` is where its values lie in bf16 anyway; undefined: nowhere, and
  // they get memory here. `lower`: memory for the lower halves, as of the host; empty: they get
  // memory here too.
  MasterHalves(memory::Pool& pool, const at::Tensor& master, const at::Tensor& resting,
               memory::Block lower = {});

  const at::Tensor& nearest() const { return nearest_; }
  const at::Tensor& lower() const { return lower_; }  // int16, where it rests
  int64_t numel() const { return lower_.numel(); }

  void join_into(const at::Tensor& master) const;
  // The memory of the lower halves, to be used again; the rest of it is of no use then.
  memory::Block take_lower() { return std::move(lower_memory_); }
  at::Tensor joined(int64_t first, int64_t numel) const;

 private:
  void join(int64_t begin, const at::Tensor& master) const;

  memory::Block nearest_memory_, lower_memory_;
  at::Tensor nearest_, lower_;
};

}  // namespace fullshard::engine
