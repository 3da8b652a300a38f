// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard::tensor {
namespace {

constexpr size_t kLargestSpace = size_t{1} << 46, kSmallestSpace = size_t{1} << 34;
constexpr size_t kAlignment = 64;
constexpr size_t kPage = 4096;
// What the allocators of GPUs round to, and so count.
constexpr size_t kDeviceAlignment = 512;

// All spaces that live, for any_owns().
struct LivingSpaces {
  std::atomic<int> count{0};
  std::mutex mutex;
  std::vector<const AddressSpace*> spaces;
};

LivingSpaces& living_spaces() {
  static auto* const spaces = new LivingSpaces;  // the last tensors may outlive all statics
  return *spaces;
}

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

struct AddressSpace::Taken {
  std::shared_ptr<AddressSpace> space;
  std::shared_ptr<AllocationWatch> watch;
  c10::Device device;
  AllocationKind kind;
  void* address;
  size_t bytes;

  static void give_back(void* context) {
    const std::unique_ptr<Taken> taken(static_cast<Taken*>(context));
    if (taken->watch) {
      taken->watch->change(taken->device, taken->kind, -static_cast<int64_t>(taken->bytes));
    }
    taken->space->give_back(taken->address, rounded(taken->bytes, kAlignment));
  }
};

AddressSpace::AddressSpace() {
  for (size_ = kLargestSpace; size_ >= kSmallestSpace; size_ /= 2) {
    void* const address = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) continue;
    // A page that is touched by accident shall not become two megabytes.
    ::madvise(address, size_, MADV_NOHUGEPAGE);
    begin_ = static_cast<std::byte*>(address);
    auto& living = living_spaces();
    const std::lock_guard lock(living.mutex);
    living.spaces.push_back(this);
    ++living.count;
    return;
  }
  fail(
      "a plan needs {} bytes of addresses, not of memory, and cannot have them: {}; raise "
      "`ulimit -v`, or set vm.overcommit_memory to 0 or 1",
      kSmallestSpace, std::strerror(errno));
}

AddressSpace::~AddressSpace() {
  auto& living = living_spaces();
  {
    const std::lock_guard lock(living.mutex);
    std::erase(living.spaces, this);
    --living.count;
  }
  ::munmap(begin_, size_);
}

void* AddressSpace::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& free = free_[bytes];
  if (!free.empty()) {
    void* const address = free.back();
    free.pop_back();
    return address;
  }
  check(bytes + kPage <= size_ - used_,
        "a plan holds more than {} bytes at once, which no machine has", size_);
  // Blocks for a disk begin at pages.
  if (bytes >= kPage) used_ = rounded(used_, kPage);
  void* const address = begin_ + used_;
  used_ += bytes;
  return address;
}

void AddressSpace::give_back(void* address, size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  free_[bytes].push_back(address);
}

c10::DataPtr AddressSpace::allocate(size_t bytes, c10::Device device, AllocationKind kind) {
  if (bytes == 0) return {nullptr, device};
  const size_t counted = device.is_cpu() ? bytes : rounded(bytes, kDeviceAlignment);
  const size_t taken = rounded(counted, kAlignment);
  void* const address = take(taken);
  auto watch = AllocationWatch::current();
  if (watch) watch->change(device, kind, static_cast<int64_t>(counted));
  auto* const context =
      new Taken{shared_from_this(), std::move(watch), device, kind, address, counted};
  return {address, context, &Taken::give_back, device};
}

c10::Allocator& AddressSpace::allocator(c10::Device device, AllocationKind kind) {
  if (device.is_cpu()) return kind == AllocationKind::tensor ? cpu_tensors_ : cpu_bytes_;
  return kind == AllocationKind::tensor ? gpu_tensors_ : gpu_bytes_;
}

bool AddressSpace::owns(const void* address) const {
  const auto* place = static_cast<const std::byte*>(address);
  return place >= begin_ && place < begin_ + size_;
}

bool AddressSpace::any_owns(const void* address) {
  auto& living = living_spaces();
  if (living.count.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(living.mutex);
  return std::ranges::any_of(living.spaces,
                             [address](const auto* space) { return space->owns(address); });
}

}  // namespace fullshard::tensor
