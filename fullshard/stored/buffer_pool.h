// Buffers of one size that are kept for the next time: only the first use pays for new memory.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "fullshard/stored/direct_file.h"

namespace fullshard {

// Thread-safe. Outlives what was taken from it.
class BufferPool {
 public:
  explicit BufferPool(int64_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}

  DirectBuffer take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        DirectBuffer buffer = std::move(free_.back());
        free_.pop_back();
        return buffer;
      }
      bytes_ += buffer_bytes_;
    }
    DirectBuffer buffer;
    buffer.reserve(buffer_bytes_);
    return buffer;
  }

  void give_back(DirectBuffer buffer) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffer));
  }

  int64_t bytes() const {  // taken and kept
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  const int64_t buffer_bytes_;
  mutable std::mutex mutex_;
  std::vector<DirectBuffer> free_;
  int64_t bytes_ = 0;
};

}  // namespace fullshard
