// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/disk_chunks.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"

namespace fullshard::optim {
namespace {

constexpr int64_t kPage = 4096;

void add(tiers::RingCounters& sum, const tiers::RingCounters& more) {
  sum.bytes_read += more.bytes_read;
  sum.bytes_visited += more.bytes_visited;
  sum.bytes_written += more.bytes_written;
  sum.num_read_waits += more.num_read_waits;
  sum.read_wait_bytes += more.read_wait_bytes;
  sum.read_wait_seconds += more.read_wait_seconds;
  sum.num_write_waits += more.num_write_waits;
  sum.write_wait_bytes += more.write_wait_bytes;
  sum.write_wait_seconds += more.write_wait_seconds;
}

int64_t largest_buffer(const std::vector<StreamedGroup>& groups) {
  int64_t bytes = 0;
  for (const auto& group : groups) {
    for (const auto& array : group.arrays) {
      if (array.tier != tiers::Tier::disk) continue;
      bytes = std::max(bytes, group.chunk_numel * array.resting.element_size());
    }
  }
  return round_up(bytes, kPage);
}

size_t most_arrays(const std::vector<StreamedGroup>& groups) {
  size_t most = 0;
  for (const auto& group : groups) most = std::max(most, group.arrays.size());
  return most;
}

}  // namespace

// Twice as many buffers as are held: while some are held, others are read and written.
DiskChunks::DiskChunks(const std::vector<StreamedGroup>& groups, int windows,
                       tiers::RingOptions options, std::vector<memory::DiskMemory*> disks,
                       memory::Pool& host)
    : groups_(groups),
      options_(options),
      disks_(std::move(disks)),
      buffers_(2 * windows * static_cast<int64_t>(most_arrays(groups))),
      buffer_bytes_(largest_buffer(groups)) {
  rings_.resize(disks_.size());
  for (size_t i = 0; i < disks_.size(); ++i) {
    memory_.push_back(host.take(buffers_ * buffer_bytes_, tiers::Purpose::optimizer));
    memory_bytes_ += buffers_ * buffer_bytes_;
  }
}

void DiskChunks::make_rings(const std::vector<ChunkRange>& ranges) {
  std::vector<std::vector<tiers::SlotFile::Window>> windows(disks_.size());
  visits_.clear();
  for (const auto& range : ranges) {
    auto& visits = visits_.emplace_back();
    for (const auto& array : groups_[static_cast<size_t>(range.group)].arrays) {
      if (array.tier != tiers::Tier::disk) continue;
      const auto part = array.resting.narrow(0, range.first, range.numel);
      for (size_t i = 0; i < disks_.size(); ++i) {
        if (!disks_[i]->holds(part)) continue;
        visits.push_back({static_cast<int>(i), static_cast<int64_t>(windows[i].size()), range.numel,
                          part.scalar_type()});
        windows[i].push_back(disks_[i]->window_of(part));
        break;
      }
    }
  }
  for (size_t i = 0; i < disks_.size(); ++i) {
    if (rings_[i]) add(before_, rings_[i]->counters());
    rings_[i].reset();
    if (windows[i].empty()) continue;
    auto options = options_;
    options.buffer_count = buffers_;
    options.buffer_bytes = buffer_bytes_;
    rings_[i] = std::make_unique<tiers::Ring>(
        disks_[i]->file(), std::move(windows[i]), options, [this, i](int64_t bytes) {
          check(bytes <= buffers_ * buffer_bytes_, "offload: a ring of {} bytes", bytes);
          return std::shared_ptr<char>(std::shared_ptr<void>(),
                                       static_cast<char*>(memory_[i].data()));
        });
  }
}

void DiskChunks::prepare(const std::vector<ChunkRange>& ranges) {
  if (ranges != ranges_) {
    settle();
    make_rings(ranges);
    ranges_ = ranges;
  }
  for (const auto& ring : rings_) {
    if (ring) ring->read_ahead();
  }
}

std::vector<at::Tensor> DiskChunks::acquire(size_t chunk) {
  std::vector<at::Tensor> arrays;
  for (const auto& visit : visits_.at(chunk)) {
    const auto bytes = rings_[static_cast<size_t>(visit.ring)]->acquire(visit.index);
    arrays.push_back(
        at::from_blob(bytes.data(), {visit.numel}, at::TensorOptions().dtype(visit.dtype)));
  }
  return arrays;
}

void DiskChunks::release(size_t chunk) {
  for (const auto& visit : visits_.at(chunk)) {
    rings_[static_cast<size_t>(visit.ring)]->release(visit.index, /*is_changed=*/true);
  }
}

void DiskChunks::settle() {
  for (const auto& ring : rings_) {
    if (ring) ring->restart();
  }
}

void DiskChunks::abandon() {
  for (const auto& ring : rings_) {
    if (ring) ring->abandon();
  }
}

tiers::RingCounters DiskChunks::counters() const {
  auto sum = before_;
  for (const auto& ring : rings_) {
    if (ring) add(sum, ring->counters());
  }
  return sum;
}

}  // namespace fullshard::optim
