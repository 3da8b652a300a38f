// SPDX-License-Identifier: Apache-2.0
// The chunks of a step whose arrays rest on a disk: read ahead into buffers of host memory, and
// written behind.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fullshard/memory/disk_memory.h"
#include "fullshard/memory/pool.h"
#include "fullshard/optim/streamed_arrays.h"
#include "fullshard/tiers/ring.h"

namespace fullshard::optim {

// Elements [first, first + numel) of a group's shard.
struct ChunkRange {
  int group = 0;
  int64_t first = 0;
  int64_t numel = 0;

  bool operator==(const ChunkRange&) const = default;
};

// One thread at a time.
class DiskChunks {
 public:
  // `groups` outlive it. As many chunks may be held at a time as there are `windows`. States and
  // parameters may have files of their own; the memory of buffers comes from `host`.
  DiskChunks(const std::vector<StreamedGroup>& groups, int windows, tiers::RingOptions options,
             std::vector<memory::DiskMemory*> disks, memory::Pool& host);

  // The chunks of the next step, in their order. Begins to read.
  void prepare(const std::vector<ChunkRange>& ranges);

  // Chunks in order: the arrays that rest on disks, in the order of the group's, in buffers.
  std::vector<at::Tensor> acquire(size_t chunk);
  // In any order. They are written behind.
  void release(size_t chunk);
  // Nothing is under way, and nothing that was read ahead counts.
  void settle();
  // The same after an error: chunks that are held are let go, unwritten.
  void abandon();

  int64_t bytes() const { return memory_bytes_; }
  tiers::RingCounters counters() const;  // of all steps

 private:
  struct Visit {
    int ring = 0;
    int64_t index = 0;  // of the ring
    int64_t numel = 0;
    at::ScalarType dtype = at::kFloat;
  };

  void make_rings(const std::vector<ChunkRange>& ranges);

  const std::vector<StreamedGroup>& groups_;
  tiers::RingOptions options_;
  std::vector<memory::DiskMemory*> disks_;
  int64_t buffers_ = 0, buffer_bytes_ = 0, memory_bytes_ = 0;
  std::vector<memory::Block> memory_;                // of each ring
  std::vector<std::unique_ptr<tiers::Ring>> rings_;  // one for each file; null: not used
  std::vector<ChunkRange> ranges_;
  std::vector<std::vector<Visit>> visits_;  // of each chunk
  tiers::RingCounters before_;              // of rings that are gone
};

}  // namespace fullshard::optim
