// SPDX-License-Identifier: Apache-2.0
// Tensors that rest in a rank's private file. They are mapped, so that whoever wants all of them (a
// checkpoint) needs no memory of that size; steps find the slots behind them and go past the page
// cache, a few windows at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>

#include "fullshard/memory/pool.h"
#include "fullshard/tiers/slot_file.h"

namespace fullshard::memory {

// One thread at a time, and no step while somebody uses the mapped tensors.
class DiskMemory {
 public:
  static constexpr int64_t kAlign = 4096;  // of windows, and of memory that they are read into

  // In that folder; slots come with the tensors.
  explicit DiskMemory(tiers::SlotFileOptions options);

  // 1-D, uint8, zeros; its space is reserved. The file lives as long as its tensors.
  at::Tensor allocate(int64_t bytes);

  tiers::SlotFile& file() { return *file_; }
  bool holds(const at::Tensor& tensor) const;
  // The part of its slot that such a tensor, or a part of it, is. Parts begin at multiples of
  // 4 KiB.
  tiers::SlotFile::Window window_of(const at::Tensor& tensor) const;

  // Steps find the values of a tensor, or of a part that begins anywhere, in another file: as they
  // lie there, in its dtype. Who reads the tensor itself does not.
  void link(const at::Tensor& part, const tiers::ForeignBytes& source);
  // Before one that is not linked is written, where the file is sparse.
  void reserve_part(const at::Tensor& part);

 private:
  struct Slot {
    int index = 0;
    int64_t bytes = 0;
  };
  std::map<const char*, Slot>::const_iterator find(const at::Tensor& tensor) const;

  std::shared_ptr<tiers::SlotFile> file_;
  std::map<const char*, Slot> slots_;  // by where they begin
};

Pool::Source disk_memory_source(std::shared_ptr<DiskMemory> disk);

}  // namespace fullshard::memory
