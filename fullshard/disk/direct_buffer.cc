// SPDX-License-Identifier: Apache-2.0
#include "fullshard/disk/direct_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

#include "fullshard/base/bytes.h"

namespace fullshard::disk {
namespace {

constexpr int64_t kLargePage = 2 * kMiB;

}  // namespace

void DirectBuffer::reserve(int64_t bytes) {
  if (size_ >= bytes) return;
  const bool is_large = bytes >= kLargePage;
  const int64_t align = is_large ? kLargePage : kDirectAlign;
  const auto rounded = static_cast<size_t>(round_up(bytes, align));
  auto* const memory = std::aligned_alloc(static_cast<size_t>(align), rounded);
  if (memory == nullptr) throw std::bad_alloc();
  bytes_ = std::shared_ptr<char>(static_cast<char*>(memory), &std::free);
  size_ = static_cast<int64_t>(rounded);
  // A device gets a large page in one piece and 4 KiB ones each by itself: that is up to half of
  // the time of a transfer. Where the system has none, small ones serve.
  if (is_large) (void)::madvise(bytes_.get(), rounded, MADV_HUGEPAGE);
}

void DirectBuffer::adopt(std::shared_ptr<char> memory, int64_t bytes) {
  bytes_ = std::move(memory);
  size_ = bytes;
}

bool is_direct_aligned(int64_t offset, const void* data, int64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return offset % kDirectAlign == 0 && bytes % kDirectAlign == 0 && address % kDirectAlign == 0;
}

}  // namespace fullshard::disk
