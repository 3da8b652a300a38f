// SPDX-License-Identifier: Apache-2.0
// One shard of parameters on its way from a disk to the device: read in parts through a few buffers
// of pinned memory (offload_param's buffer_count and buffer_size), copied from there part by part.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fullshard/engine/plan/tier_memory.h"
#include "fullshard/memory/lane.h"
#include "fullshard/memory/pool.h"

namespace fullshard::engine {

// One thread at a time.
class DiskFetch {
 public:
  explicit DiskFetch(const TierMemory& tiers) : tiers_(tiers) {}
  ~DiskFetch() { abandon(); }
  DiskFetch(const DiskFetch&) = delete;
  DiskFetch& operator=(const DiskFetch&) = delete;

  // Reads as much as the buffers hold, without waiting. `resting` is mapped.
  void begin(const at::Tensor& resting);
  bool is_under_way() const { return resting_.defined(); }
  // Waits for the disk, reads the rest, and copies all of it into `target`, behind the mark that it
  // returns. The buffers are free again.
  memory::LaneMark finish(const at::Tensor& target);
  // Nobody wants it any more: waits until the disk has done with the buffers, well or badly.
  void abandon();

 private:
  struct Buffer {
    memory::Block memory;
    tiers::SlotFile::Ticket ticket;
    memory::LaneMark copied;
  };

  int64_t num_parts() const;
  at::Tensor part(const at::Tensor& whole, int64_t index) const;
  void begin_part(int64_t index);
  void copy_parts(const at::Tensor& target);

  const TierMemory& tiers_;
  at::Tensor resting_;
  int64_t part_numel_ = 0;
  std::vector<Buffer> buffers_;
};

}  // namespace fullshard::engine
