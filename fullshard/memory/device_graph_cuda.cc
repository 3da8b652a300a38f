// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <map>
#include <mutex>

#include "fullshard/base/error.h"
#include "fullshard/memory/device_graph.h"

namespace fullshard::memory {
namespace {

// The default stream cannot be captured. All graphs of a GPU are captured on one other: cuBLAS has
// a workspace for every stream that it has seen.
c10::cuda::CUDAStream capture_stream(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  const auto made = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device);
  return streams.emplace(device, made).first->second;
}

}  // namespace

struct DeviceGraph::Captured {
  at::cuda::CUDAGraph graph;
};

DeviceGraph::DeviceGraph(at::Device device) : device_(device) {}
DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::capture(const std::function<void()>& issue, const DeviceGraph* neighbour) {
  const c10::cuda::CUDAGuard on_device(device_);
  auto captured = std::make_unique<Captured>();
  c10::cuda::getCurrentCUDAStream().synchronize();
  const c10::cuda::CUDAStreamGuard on_stream(capture_stream(device_.index()));
  const auto memory = neighbour != nullptr && neighbour->is_captured()
                          ? neighbour->captured_->graph.pool()
                          : at::cuda::MempoolId_t{0, 0};
  // Other threads, which watch ranks or bring data, may go on asking the device.
  captured->graph.capture_begin(memory, cudaStreamCaptureModeThreadLocal);
  try {
    issue();
  } catch (...) {
    try {
      captured->graph.capture_end();
    } catch (const std::exception&) {  // what went wrong first is told
    }
    throw;
  }
  captured->graph.capture_end();
  captured_ = std::move(captured);
}

void DeviceGraph::replay() {
  check(is_captured(), "a graph of device work: it was not captured");
  const c10::cuda::CUDAGuard on_device(device_);
  captured_->graph.replay();
}

}  // namespace fullshard::memory
