// SPDX-License-Identifier: Apache-2.0
#include "tests/stand_in/device/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "fullshard/base/error.h"
#include "tests/stand_in/device/device_streams.h"

namespace fullshard::stand_in {

DeviceMemory& DeviceMemory::instance() {
  static auto* const memory = new DeviceMemory;
  return *memory;
}

DeviceMemory::DeviceMemory() {
  const int file = memfd_create("stand-in device", MFD_CLOEXEC);
  check(file >= 0 && ::ftruncate(file, kBytes) == 0, "stand-in device: no file for its memory");
  const auto mapped = [file](int protection) {
    void* const address = ::mmap(nullptr, kBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    check(address != MAP_FAILED, "stand-in device: no addresses for its memory");
    return static_cast<std::byte*>(address);
  };
  outside_ = mapped(PROT_NONE);
  inside_ = mapped(PROT_READ | PROT_WRITE);
  ::close(file);
}

size_t DeviceMemory::end_of_blocks() const {
  if (blocks_.empty()) return 0;
  const auto& [address, block] = *blocks_.rbegin();
  return static_cast<size_t>(address - outside_) + block.bytes;
}

std::byte* DeviceMemory::place_for(size_t bytes) const {
  std::byte* place = outside_;
  for (const auto& [address, block] : blocks_) {
    if (static_cast<size_t>(address - place) >= bytes) return place;
    place = address + block.bytes;
  }
  return place;
}

void DeviceMemory::protect(int change) {
  const std::lock_guard lock(Streams::instance().mutex());
  const bool was_open = num_opened_ > 0;
  num_opened_ += change;
  if (was_open == (num_opened_ > 0)) return;
  if (!was_open) opened_bytes_ = (end_of_blocks() + 4095) / 4096 * 4096;
  ::mprotect(outside_, opened_bytes_, was_open ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void DeviceMemory::take_room(int64_t bytes) {
  const bool fits =
      held_ + bytes <= room_ && (graph_ == 0 || held_by_graph_ + bytes <= room_of_graphs_);
  TORCH_CHECK_WITH(OutOfMemoryError, fits, "CUDA out of memory. Tried to allocate ", bytes,
                   " bytes of the stand-in device");
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  if (graph_ != 0) held_by_graph_ += bytes;
}

void DeviceMemory::set_room(int64_t bytes, int64_t bytes_of_graphs) {
  const std::lock_guard lock(Streams::instance().mutex());
  const auto all = static_cast<int64_t>(kBytes);
  room_ = bytes == 0 ? all : bytes;
  room_of_graphs_ = bytes_of_graphs == 0 ? all : bytes_of_graphs;
}

c10::DataPtr DeviceMemory::allocate(size_t bytes) {
  const c10::Device device(c10::kCUDA, 0);
  if (bytes == 0) return {nullptr, device};
  const std::lock_guard lock(Streams::instance().mutex());
  collect();
  const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  take_room(static_cast<int64_t>(size));
  std::byte* const address = place_for(size);
  // What a graph computes is not there while it is captured, and operators look at indices.
  std::memset(for_device(address), graph_ == 0 ? 0xff : 0, size);
  blocks_[address] = {.bytes = size, .stream = Streams::current(), .graph = graph_};
  return {address, address, &give_back, device};
}

void DeviceMemory::give_back(void* address) {
  instance().free_block(static_cast<std::byte*>(address));
}

void DeviceMemory::free_block(std::byte* address) {
  const std::lock_guard lock(Streams::instance().mutex());
  auto& block = blocks_.at(address);
  held_ -= static_cast<int64_t>(block.bytes);
  block.is_free = true;
  if (block.graph != 0) return;
  for (const int64_t stream : std::exchange(block.streams, {})) {
    block.uses.push_back({stream, Streams::instance().end_of(stream)});
  }
  if (!block.uses.empty()) {
    leaving_.push_back(address);
    return;
  }
  // In the order of its own stream; others were to be told of.
  Streams::instance().submit(block.stream, [this, address] {
    const auto found = blocks_.find(address);
    std::memset(for_device(address), 0xff, found->second.bytes);
    blocks_.erase(found);
  });
}

void DeviceMemory::collect() {
  std::erase_if(leaving_, [this](std::byte* address) {
    auto& block = blocks_.at(address);
    const bool is_used = std::ranges::any_of(block.uses, [](const Use& use) {
      return !Streams::instance().has_passed(use.stream, use.position);
    });
    if (is_used) return false;
    block.uses.clear();
    held_ += static_cast<int64_t>(block.bytes);
    free_block(address);
    return true;
  });
}

void DeviceMemory::recordStream(const c10::DataPtr& memory, c10::Stream stream) {
  const std::lock_guard lock(Streams::instance().mutex());
  const auto found = blocks_.find(static_cast<std::byte*>(memory.get_context()));
  if (found == blocks_.end() || found->second.stream == stream.id()) return;
  found->second.streams.push_back(stream.id());
}

void DeviceMemory::copy_data(void* to, const void* from, size_t bytes) const {
  std::memcpy(for_device(to), for_device(from), bytes);
}

void DeviceMemory::begin_graph(int64_t graph) {
  const std::lock_guard lock(Streams::instance().mutex());
  graph_ = graph;
  held_by_graph_ = 0;
}

void DeviceMemory::end_graph() { begin_graph(0); }

void DeviceMemory::release_graph(int64_t graph) {
  const std::lock_guard lock(Streams::instance().mutex());
  for (auto& [address, block] : blocks_) {
    if (block.graph != graph) continue;
    block.graph = 0;
    if (!block.is_free) continue;
    leaving_.push_back(address);  // taken back with the next that are
  }
}

int64_t DeviceMemory::available_bytes() const {
  const std::lock_guard lock(Streams::instance().mutex());
  return room_ - held_;
}

c10::CachingDeviceAllocator::DeviceStats DeviceMemory::getDeviceStats(c10::DeviceIndex) {
  const std::lock_guard lock(Streams::instance().mutex());
  c10::CachingDeviceAllocator::DeviceStats stats;
  stats.allocated_bytes[0].current = held_;
  stats.allocated_bytes[0].peak = peak_;
  stats.reserved_bytes[0].current = static_cast<int64_t>(end_of_blocks());
  stats.num_device_alloc = num_calls_;
  return stats;
}

void DeviceMemory::resetPeakStats(c10::DeviceIndex) {
  const std::lock_guard lock(Streams::instance().mutex());
  peak_ = held_;
}

}  // namespace fullshard::stand_in
