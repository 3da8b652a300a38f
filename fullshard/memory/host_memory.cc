// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/host_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/tensor/parallel.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::memory {
namespace {

// Whole pages of its own: pinning works on pages.
void* mapped_pages(int64_t bytes) {
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(data != MAP_FAILED, "{} bytes of host memory cannot be had: {}", bytes,
        std::strerror(errno));
  ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a wish: fewer pages to pin
  return data;
}

// All threads: the driver, which pins page by page, would have the kernel clear each of them on
// one.
void touch_pages(void* data, int64_t bytes) {
  constexpr int64_t kPage = 4096;
  constexpr int64_t kPagesPerThread = 4096;  // fewer are not worth another thread
  auto* const first = static_cast<volatile char*>(data);
  tensor::parallel_ranges((bytes + kPage - 1) / kPage, kPagesPerThread,
                          [first](int64_t begin, int64_t end) {
                            for (int64_t page = begin; page < end; ++page) first[page * kPage] = 0;
                          });
}

void warn_of_pageable(int64_t bytes, const std::string& why) {
  spdlog::warn(
      "{} bytes of host memory could not be pinned ({}) and stay pageable, as may more: copies "
      "between them and the GPU take two to four times as long and do not run beside computation. "
      "Raise the limit of locked memory (ulimit -l unlimited; docker run --ulimit memlock=-1), or "
      "keep a larger share on the device",
      bytes, why);
}

}  // namespace

Pool::Source host_memory_source(PinMemory pinning) {
  const auto has_warned = std::make_shared<std::atomic<bool>>(false);
  return [pinning = std::move(pinning), has_warned](int64_t bytes) {
    if (tensor::is_pretended()) return at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
    const int64_t mapped = std::max<int64_t>(bytes, 1);
    void* data = mapped_pages(mapped);
    bool is_pinned = false;
    if (pinning.pin) {
      touch_pages(data, mapped);
      const auto problem = pinning.pin(data, mapped);
      is_pinned = problem.empty();
      if (!is_pinned && !has_warned->exchange(true)) warn_of_pageable(bytes, problem);
    }
    const auto unpin = is_pinned ? pinning.unpin : std::function<void(void*)>();
    const auto give_back = [unpin, mapped](void* memory) {
      if (unpin) unpin(memory);
      ::munmap(memory, static_cast<size_t>(mapped));
    };
    return at::from_blob(data, {bytes}, give_back, at::TensorOptions().dtype(at::kByte));
  };
}

}  // namespace fullshard::memory
