// SPDX-License-Identifier: Apache-2.0
// Addresses without memory: large blocks that cost nothing until somebody touches them. What is
// touched reads as zero and may be written.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "fullshard/tensor/allocation_watch.h"

namespace fullshard::tensor {

// Thread-safe. Held by shared_ptr: blocks keep it.
class AddressSpace : public std::enable_shared_from_this<AddressSpace> {
 public:
  // As large as the system lets it be; too little of it is an Error.
  AddressSpace();
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  // The present watch (allocation_watch.h) is told.
  c10::DataPtr allocate(size_t bytes, c10::Device device, AllocationKind kind);
  // For storages of that device, CPU or GPU; lives as long as the space.
  c10::Allocator& allocator(c10::Device device, AllocationKind kind);

  bool owns(const void* address) const;
  // Whether any space of the process does. Costs next to nothing where there is none.
  static bool any_owns(const void* address);

 private:
  class OfDevice : public c10::Allocator {
   public:
    OfDevice(AddressSpace& space, c10::Device device, AllocationKind kind)
        : space_(space), device_(device), kind_(kind) {}
    c10::DataPtr allocate(size_t bytes) override { return space_.allocate(bytes, device_, kind_); }
    void copy_data(void*, const void*, size_t) const override {}

   private:
    AddressSpace& space_;
    c10::Device device_;
    AllocationKind kind_;
  };

  struct Taken;
  void* take(size_t bytes);
  void give_back(void* address, size_t bytes) noexcept;

  OfDevice cpu_tensors_{*this, c10::kCPU, AllocationKind::tensor};
  OfDevice cpu_bytes_{*this, c10::kCPU, AllocationKind::bytes};
  OfDevice gpu_tensors_{*this, {c10::kCUDA, 0}, AllocationKind::tensor};
  OfDevice gpu_bytes_{*this, {c10::kCUDA, 0}, AllocationKind::bytes};
  std::byte* begin_ = nullptr;
  size_t size_ = 0;
  std::mutex mutex_;
  size_t used_ = 0;
  std::map<size_t, std::vector<void*>> free_;  // by size: a step asks for the same ones again
};

}  // namespace fullshard::tensor
