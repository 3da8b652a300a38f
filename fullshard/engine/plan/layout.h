// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a group lie in its flat buffer, and which part of them each rank owns.
// Integers only: no torch, no memory. The drawing is in docs/memory_layout.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::engine {

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;

  int64_t numel() const;
};

// A tensor's place in a group, in elements.
struct Slot {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;
  int64_t numel = 0;

  int64_t end() const { return offset + numel; }
};

// The part of a tensor that one rank owns: elements [begin, end) of the tensor, counted row-major,
// which lie at `shard_offset` in that rank's shard.
struct Piece {
  int slot = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t shard_offset = 0;

  int64_t numel() const { return end - begin; }
};

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};

// Tensors are laid one after the other, each start aligned; the whole is padded so that every
// rank's shard has the same, aligned size. Cuts may fall anywhere inside a tensor.
class Layout {
 public:
  Layout() = default;
  // `align` in elements.
  Layout(const std::vector<TensorSpec>& tensors, int num_shards, int64_t align);

  const std::vector<Slot>& slots() const { return slots_; }
  int num_shards() const { return num_shards_; }
  int64_t numel() const { return numel_; }  // with padding
  int64_t shard_numel() const { return numel_ / num_shards_; }
  int64_t tensor_numel() const { return tensor_numel_; }  // without padding

  // In ascending order of their place; tensors of which the shard holds nothing are left out.
  std::vector<Piece> pieces(int shard) const;
  // The ranges that belong to no tensor; they always hold zeros.
  std::vector<Interval> padding() const;

 private:
  std::vector<Slot> slots_;
  int num_shards_ = 1;
  int64_t numel_ = 0;
  int64_t tensor_numel_ = 0;
};

// The order in which tensors are laid so that neighbours go to different ranks (DeepSpeed's
// round_robin_gradients): 0, n, 2n, …, 1, n+1, … for n shards.
std::vector<int> round_robin_order(int num_tensors, int num_shards);

}  // namespace fullshard::engine
