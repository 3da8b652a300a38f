// SPDX-License-Identifier: Apache-2.0
// First in, first out, in memory that is taken once: what passes bytes to a disk must not wait for
// an allocator.
#pragma once

#include <cassert>
#include <cstddef>
#include <vector>

namespace fullshard::disk {

// Not thread-safe.
template <class T>
class FixedQueue {
 public:
  explicit FixedQueue(size_t capacity) : items_(capacity) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  void push(const T& item) {
    assert(size_ < items_.size());
    items_[(first_ + size_) % items_.size()] = item;
    ++size_;
  }
  T& front() {
    assert(size_ > 0);
    return items_[first_];
  }
  void pop() {
    assert(size_ > 0);
    first_ = (first_ + 1) % items_.size();
    --size_;
  }

 private:
  std::vector<T> items_;
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace fullshard::disk
