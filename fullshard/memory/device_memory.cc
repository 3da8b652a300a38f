// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace fullshard::memory {
namespace {

constexpr size_t kAll = 0;  // of the allocator's kinds of pools

}  // namespace

DeviceMemory device_memory(at::Device device) {
  if (device.is_cpu()) return {};
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return {.allocated_bytes = stats.allocated_bytes[kAll].current,
          .peak_bytes = stats.allocated_bytes[kAll].peak,
          .reserved_bytes = stats.reserved_bytes[kAll].current,
          .num_driver_calls = stats.num_device_alloc,
          .num_retries = stats.num_alloc_retries};
}

void reset_device_peak(at::Device device) {
  if (!device.is_cpu()) at::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

void release_unused(at::Device device) {
  if (!device.is_cpu()) at::getDeviceAllocator(device.type())->emptyCache();
}

void synchronise(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

}  // namespace fullshard::memory
