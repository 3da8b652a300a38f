// SPDX-License-Identifier: Apache-2.0
// Where the states of pieces lie: those of whole shards, or those of one chunk in its window.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fullshard/engine/sharded_model.h"

namespace fullshard::optim {

// A part of a group's update: its pieces, cut to the chunk, and where their states lie now. Element
// `first` of the shard is element 0 of each of them. Lower halves of masters are in the pieces.
struct StateChunk {
  std::vector<PieceView> pieces = {};
  std::vector<at::Tensor> states = {};
  int64_t first = 0;
};

// Looks at what it is made of.
class StatePlaces {
 public:
  // [group][state], 1-D, as long as the shards.
  StatePlaces(const std::vector<std::vector<at::Tensor>>& states) : of_groups_(&states) {}
  StatePlaces(const StateChunk& chunk) : of_chunk_(&chunk.states), first_(chunk.first) {}

  // Their element 0 is element first() of the group's shard.
  const std::vector<at::Tensor>& arrays(int group) const {
    return of_chunk_ != nullptr ? *of_chunk_ : of_groups_->at(static_cast<size_t>(group));
  }
  int64_t first() const { return first_; }

 private:
  const std::vector<std::vector<at::Tensor>>* of_groups_ = nullptr;
  const std::vector<at::Tensor>* of_chunk_ = nullptr;
  int64_t first_ = 0;
};

}  // namespace fullshard::optim
