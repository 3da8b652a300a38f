// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/disk_memory.h"

#include <ATen/ops/from_blob.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::memory {

DiskMemory::DiskMemory(tiers::SlotFileOptions options)
    : file_(std::make_shared<tiers::SlotFile>(std::move(options))) {}

at::Tensor DiskMemory::allocate(int64_t bytes) {
  const bool is_first = slots_.empty();
  const int slot = file_->add_slot(bytes);
  if (const auto notice = file_->notice(); is_first && bytes > 0 && !notice.empty()) {
    spdlog::warn("{}", notice);
  }
  const auto mapped = file_->map_slot(slot);
  slots_[mapped.get()] = {slot, bytes};
  // Whoever holds the tensor holds the mapping, which outlives the file's descriptors.
  return at::from_blob(
      mapped.get(), {bytes}, [mapped](void*) {}, at::TensorOptions().dtype(at::kByte));
}

std::map<const char*, DiskMemory::Slot>::const_iterator DiskMemory::find(
    const at::Tensor& tensor) const {
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  auto found = slots_.upper_bound(data);
  if (found == slots_.begin()) return slots_.end();
  --found;
  const int64_t offset = data - found->first;
  return offset <= found->second.bytes && bytes <= found->second.bytes - offset ? found
                                                                                : slots_.end();
}

bool DiskMemory::holds(const at::Tensor& tensor) const { return find(tensor) != slots_.end(); }

tiers::SlotFile::Window DiskMemory::window_of(const at::Tensor& tensor) const {
  const auto found = find(tensor);
  check(found != slots_.end(), "offload: a tensor that does not rest on this disk");
  return {.slot = found->second.index,
          .offset = static_cast<const char*>(tensor.const_data_ptr()) - found->first,
          .bytes = static_cast<int64_t>(tensor.nbytes())};
}

void DiskMemory::link(const at::Tensor& part, const tiers::ForeignBytes& source) {
  file_->link(window_of(part), source);
}

void DiskMemory::reserve_part(const at::Tensor& part) { file_->reserve_part(window_of(part)); }

Pool::Source disk_memory_source(std::shared_ptr<DiskMemory> disk) {
  return [disk = std::move(disk)](int64_t bytes) { return disk->allocate(bytes); };
}

}  // namespace fullshard::memory
