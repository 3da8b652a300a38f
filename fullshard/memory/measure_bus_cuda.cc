// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>

#include "fullshard/base/error.h"
#include "fullshard/memory/measure_bus.h"

namespace fullshard::memory {
namespace {

void check_bus(cudaError_t status) {
  check(status == cudaSuccess, "bench bus: {}", cudaGetErrorString(status));
}

// Two buffers on each side and two streams, one for each way.
class BusCopies {
 public:
  explicit BusCopies(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    for (int way = 0; way < 2; ++way) {
      check_bus(cudaMallocHost(&on_host_[way], bytes_));
      check_bus(cudaMalloc(&on_device_[way], bytes_));
      check_bus(cudaStreamCreateWithFlags(&streams_[way], cudaStreamNonBlocking));
    }
  }
  ~BusCopies() {
    for (int way = 0; way < 2; ++way) {
      if (streams_[way] != nullptr) cudaStreamDestroy(streams_[way]);
      cudaFree(on_device_[way]);
      cudaFreeHost(on_host_[way]);
    }
  }
  BusCopies(const BusCopies&) = delete;
  BusCopies& operator=(const BusCopies&) = delete;

  // Bytes per second; the first round is not counted.
  double best_of(int rounds, bool to_device, bool to_host) {
    double best = 0;
    for (int round = 0; round <= rounds; ++round) {
      check_bus(cudaDeviceSynchronize());
      const auto begin = std::chrono::steady_clock::now();
      if (to_device) copy(0, cudaMemcpyHostToDevice);
      if (to_host) copy(1, cudaMemcpyDeviceToHost);
      check_bus(cudaDeviceSynchronize());
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      const auto moved = static_cast<double>(bytes_) * (int{to_device} + int{to_host});
      if (round > 0) best = std::max(best, moved / taken.count());
    }
    return best;
  }

 private:
  void copy(int way, cudaMemcpyKind kind) {
    void* const into = kind == cudaMemcpyHostToDevice ? on_device_[way] : on_host_[way];
    const void* const from = kind == cudaMemcpyHostToDevice ? on_host_[way] : on_device_[way];
    check_bus(cudaMemcpyAsync(into, from, bytes_, kind, streams_[way]));
  }

  const size_t bytes_;
  void* on_host_[2] = {};
  void* on_device_[2] = {};
  cudaStream_t streams_[2] = {};
};

}  // namespace

std::optional<tiers::BusSpeed> measure_bus(int64_t bytes, int rounds) {
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) return std::nullopt;
  int device = 0;
  check_bus(cudaGetDevice(&device));
  cudaDeviceProp properties{};
  check_bus(cudaGetDeviceProperties(&properties, device));
  BusCopies copies(bytes);
  return tiers::BusSpeed{.device = properties.name,
                         .to_device = copies.best_of(rounds, true, false),
                         .to_host = copies.best_of(rounds, false, true),
                         .both = copies.best_of(rounds, true, true)};
}

}  // namespace fullshard::memory
