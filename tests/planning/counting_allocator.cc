// SPDX-License-Identifier: Apache-2.0
#include "tests/planning/counting_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <map>
#include <memory>
#include <mutex>

#include "fullshard/tensor/allocation_watch.h"

namespace fullshard::testing {
namespace {

struct CountedBlock {
  c10::DataPtr memory;
  std::shared_ptr<tensor::AllocationWatch> watch;  // whom to tell when it goes; null: nobody
  int64_t bytes;
};

// By address: oneDNN frees what it took by that alone.
struct CountedBlocks {
  std::mutex mutex;
  std::map<void*, CountedBlock> by_address;
};

CountedBlocks& counted_blocks() {
  static auto* const blocks = new CountedBlocks;  // storages outlive everything else
  return *blocks;
}

void free_counted(void* address) {
  auto& blocks = counted_blocks();
  std::unique_lock lock(blocks.mutex);
  const auto node = blocks.by_address.extract(address);
  lock.unlock();
  if (node.empty()) return;  // no bytes were asked for
  const auto& block = node.mapped();
  if (block.watch) {
    block.watch->change(c10::kCPU, tensor::AllocationKind::tensor, -block.bytes);
  }
}

// libtorch's own, and a note where somebody watches.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator& inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    auto memory = inner_.allocate(bytes);
    if (memory.get() == nullptr) return memory;
    auto watch = tensor::AllocationWatch::current();
    if (watch)
      watch->change(c10::kCPU, tensor::AllocationKind::tensor, static_cast<int64_t>(bytes));
    void* const data = memory.get();
    auto& blocks = counted_blocks();
    const std::lock_guard lock(blocks.mutex);
    blocks.by_address.emplace(
        data, CountedBlock{std::move(memory), std::move(watch), static_cast<int64_t>(bytes)});
    return {data, data, &free_counted, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  c10::Allocator& inner_;
};

}  // namespace

void install_counting_allocator() {
  // Lives as long as the process: storages keep pointers to it.
  static auto* const counting = [] {
    auto* made = new CountingAllocator(*c10::GetDefaultCPUAllocator());
    c10::SetCPUAllocator(made, /*priority=*/1);
    return made;
  }();
  (void)counting;
}

}  // namespace fullshard::testing
