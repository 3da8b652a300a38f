// SPDX-License-Identifier: Apache-2.0
// Memory that a disk reads and writes itself, past the page cache.
#pragma once

#include <cstdint>
#include <memory>

namespace fullshard::disk {

inline constexpr int64_t kDirectAlign = 4096;  // of memory, offset and length; fits every device

// Memory for direct transfers. Empty until reserve().
class DirectBuffer {
 public:
  void reserve(int64_t bytes);                              // contents are lost when it grows
  void adopt(std::shared_ptr<char> memory, int64_t bytes);  // instead of memory of its own
  char* data() { return bytes_.get(); }

 private:
  std::shared_ptr<char> bytes_;
  int64_t size_ = 0;
};

bool is_direct_aligned(int64_t offset, const void* data, int64_t bytes);

}  // namespace fullshard::disk
