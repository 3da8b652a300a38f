// SPDX-License-Identifier: Apache-2.0
// A pool of buffers of one size: only the first use pays for new memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fullshard/disk/direct_buffer.h"

namespace fullshard::stored {

// Thread-safe. It must outlive the buffers taken from it.
class BufferPool {
 public:
  // Returns memory, aligned for direct I/O, that is freed with its last handle. Several threads may
  // call it at once.
  using Source = std::function<std::shared_ptr<char>(int64_t bytes)>;

  // Without a source: ordinary memory.
  explicit BufferPool(int64_t buffer_bytes, Source source = {})
      : buffer_bytes_(buffer_bytes), source_(std::move(source)) {}

  disk::DirectBuffer take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        disk::DirectBuffer buffer = std::move(free_.back());
        free_.pop_back();
        return buffer;
      }
      bytes_ += buffer_bytes_;
    }
    disk::DirectBuffer buffer;
    if (source_) {
      buffer.adopt(source_(buffer_bytes_), buffer_bytes_);
    } else {
      buffer.reserve(buffer_bytes_);
    }
    return buffer;
  }

  void give_back(disk::DirectBuffer buffer) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffer));
  }

  // Adds `num` free buffers. Pinning memory costs a driver call, so many are requested at once: a
  // power of two, to which allocators of pinned memory round up.
  void reserve(int64_t num) {
    if (!source_) return;
    for (int64_t left = num - num_free(); left > 0;) {
      const auto count = std::min(kMostAtOnce, std::bit_floor(static_cast<uint64_t>(left)));
      add(static_cast<int64_t>(count));
      left -= static_cast<int64_t>(count);
    }
  }

  int64_t bytes() const {  // in use and free
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  static constexpr uint64_t kMostAtOnce = 64;

  int64_t num_free() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(free_.size());
  }

  void add(int64_t num) {
    const auto memory = source_(num * buffer_bytes_);
    const std::lock_guard lock(mutex_);
    bytes_ += num * buffer_bytes_;
    for (int64_t i = num - 1; i >= 0; --i) {
      free_.emplace_back().adopt({memory, memory.get() + i * buffer_bytes_}, buffer_bytes_);
    }
  }

  const int64_t buffer_bytes_;
  const Source source_;
  mutable std::mutex mutex_;
  std::vector<disk::DirectBuffer> free_;
  int64_t bytes_ = 0;
};

}  // namespace fullshard::stored
