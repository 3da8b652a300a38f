// SPDX-License-Identifier: Apache-2.0
// A file descriptor with one owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace fullshard::comm {

class ShmDescriptor {
 public:
  ShmDescriptor() = default;
  explicit ShmDescriptor(int descriptor) : descriptor_(descriptor) {}
  ShmDescriptor(ShmDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ShmDescriptor& operator=(ShmDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~ShmDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

}  // namespace fullshard::comm
