// SPDX-License-Identifier: Apache-2.0
// The reduced gradients of one group in host memory, between their reduction and their update: they
// leave the device while backward goes on, with their norms taken before.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "fullshard/engine/gradients/device_norm_kernels.h"
#include "fullshard/engine/plan/group_context.h"
#include "fullshard/engine/plan/layout.h"
#include "fullshard/memory/lane.h"
#include "fullshard/memory/pool.h"

namespace fullshard::engine {

// One thread at a time.
class AwayGradients {
 public:
  // Takes its memory, for good: it is pinned, which takes long.
  AwayGradients(const GroupContext& context, const Layout& layout, std::vector<Piece> pieces,
                at::ScalarType dtype);

  bool is_away() const { return is_away_; }
  // As the shard, 1-D: where an update reads it, behind left().
  at::Tensor resting() const { return memory_.as(numel_, dtype_); }
  const memory::LaneMark& left() const { return left_; }
  at::Tensor of_piece(const Piece& piece) const {
    return resting().narrow(0, piece.shard_offset, piece.numel());
  }

  // Takes the values of this rank's pieces, 1-D on the device. Their `memory` may be freed at once.
  void take(const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& memory);
  // Their values count on the device again, or nowhere; whoever reads resting() has waited.
  void forget();
  // The caller's stream may read resting().
  void hold_caller() const { left_.hold_caller(); }

  // Of an accelerator: one number for each slot of the group, fp64 there; undefined when nobody
  // knows them any more.
  const at::Tensor& norms(NormKind kind) const { return norms_.at(static_cast<size_t>(kind)); }
  void forget_norms() { norms_ = {}; }

 private:
  void take_norms(const std::vector<at::Tensor>& values);

  const GroupContext& context_;
  std::vector<Piece> pieces_;
  int64_t numel_ = 0, num_slots_ = 0;
  at::ScalarType dtype_;
  memory::Block memory_;
  bool is_away_ = false;
  memory::LaneMark left_;
  std::array<at::Tensor, 2> norms_;
};

}  // namespace fullshard::engine
