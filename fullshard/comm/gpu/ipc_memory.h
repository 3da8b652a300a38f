// SPDX-License-Identifier: Apache-2.0
// Memory and events of one GPU seen by several processes: CUDA IPC. Only in builds with CUDA.
#pragma once

#include <ATen/core/Tensor.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace fullshard::comm {

void check_cuda(cudaError_t result, const char* what);

// A place in another process's device memory; plain bytes, to be handed over.
struct IpcPlace {
  cudaIpcMemHandle_t allocation{};
  int64_t offset = 0;
};

IpcPlace ipc_place_of(const at::Tensor& tensor);

// Allocations of peers, each opened once. They stay open as long as this object: the allocator of a
// peer keeps what it has, so they are few.
class IpcMemory {
 public:
  IpcMemory() = default;
  ~IpcMemory();
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  void* open(const IpcPlace& place);

 private:
  using Key = std::string;  // the handle's bytes
  std::map<Key, void*> opened_;
};

// Marks on a stream that other processes wait for on theirs. Several, used in turn.
class IpcEvents {
 public:
  static constexpr size_t kCount = 4;
  using Handles = std::array<cudaIpcEventHandle_t, kCount>;

  IpcEvents() = default;
  ~IpcEvents();
  IpcEvents(IpcEvents&& other) noexcept { swap(other); }
  IpcEvents& operator=(IpcEvents&&) = delete;
  void swap(IpcEvents& other) noexcept { events_.swap(other.events_); }

  static IpcEvents make();
  static IpcEvents open(const Handles& handles);
  Handles handles() const;
  cudaEvent_t of(uint64_t call) const { return events_[call % kCount]; }

 private:
  std::array<cudaEvent_t, kCount> events_{};
};

}  // namespace fullshard::comm
