// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/memory/device_graph.h"

namespace fullshard::memory {

struct DeviceGraph::Captured {};

DeviceGraph::DeviceGraph(at::Device device) : device_(device) {
  fail("a graph of device work: this build has no CUDA; configure with the cuda preset");
}
DeviceGraph::~DeviceGraph() = default;
void DeviceGraph::capture(const std::function<void()>&, const DeviceGraph*) {}
void DeviceGraph::replay() {}

}  // namespace fullshard::memory
