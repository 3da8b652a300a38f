// SPDX-License-Identifier: Apache-2.0
// Work that is given to a GPU once and run again as a whole: a CUDA graph. Hundreds of kernels of a
// few microseconds each, issued one by one, would let the GPU wait for the host most of the time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace fullshard::memory {

// A build without CUDA has none: making one is an error.
class DeviceGraph {
 public:
  explicit DeviceGraph(at::Device device);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // `issue` gives work to the current stream, and to no other; nothing runs. It reads nothing on
  // the host, and what it uses stays where it is while this lives. Memory that it allocates and
  // gives back stays this graph's own, or is that of `neighbour`, a captured one: then neither runs
  // while the other does, and what one leaves there is read before the other runs. What `issue`
  // throws is thrown, and nothing is captured then.
  void capture(const std::function<void()>& issue, const DeviceGraph* neighbour = nullptr);
  bool is_captured() const { return captured_ != nullptr; }
  // On the current stream.
  void replay();

 private:
  struct Captured;
  at::Device device_;
  std::unique_ptr<Captured> captured_;
};

}  // namespace fullshard::memory
