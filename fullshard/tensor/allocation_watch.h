// SPDX-License-Identifier: Apache-2.0
// Who is told of the tensors that a thread allocates and frees. The watch goes with the thread's
// state, as autograd hands that to its own threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace fullshard::tensor {

// What was allocated: a tensor of numbers, or plain bytes that somebody makes tensors of (the pools
// of the engine do).
enum class AllocationKind { tensor, bytes };

// Thread-safe: memory may be freed on another thread than the one that took it.
class AllocationWatch : public c10::DebugInfoBase,
                        public std::enable_shared_from_this<AllocationWatch> {
 public:
  // `bytes` is negative where memory was freed.
  virtual void change(at::Device device, AllocationKind kind, int64_t bytes) = 0;

  // Of this thread; null where nobody watches, or somebody else counts (UnwatchedScope).
  static std::shared_ptr<AllocationWatch> current();
};

// While it lives, `watch` is told what this thread allocates.
class WatchScope {
 public:
  explicit WatchScope(std::shared_ptr<AllocationWatch> watch);

 private:
  c10::DebugInfoGuard guard_;
};

// Around allocations that their owner enters in a ledger himself.
class UnwatchedScope {
 public:
  UnwatchedScope();
  ~UnwatchedScope();
  UnwatchedScope(const UnwatchedScope&) = delete;
  UnwatchedScope& operator=(const UnwatchedScope&) = delete;
};

}  // namespace fullshard::tensor
