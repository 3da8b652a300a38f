// SPDX-License-Identifier: Apache-2.0
// Ranks whose models lie on accelerators. Collectives over host tensors go where they always went,
// with its ways of naming who is late; those over device tensors take a link of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/gpu/device_link.h"
#include "fullshard/comm/transport.h"
#include "fullshard/comm/world_options.h"

namespace fullshard::comm {

// "cpu"; "cuda": the GPU number `local_rank`, counted round when ranks share; "cuda:N". An error
// names what is missing: a build with CUDA, a driver, that GPU.
at::Device choose_device(const std::string& wanted, int local_rank);
int num_cuda_devices();  // visible ones; 0 without CUDA

// This thread works for the device from now on. Before its first call to CUDA, or that call makes a
// context on GPU 0, half a gigabyte that nobody uses.
void enter_device(at::Device device);
// What tells a GPU from every other of its host, by whatever number it is known; "" for the CPU.
std::string device_identity(at::Device device);

struct DeviceTransportOptions {
  at::Device device = at::kCPU;
  DeviceLink link = DeviceLink::self;
  int rank = 0;
  std::vector<int> hosts = {};  // of each rank of the world
  DeviceSums sums = DeviceSums::ordered;
};
std::shared_ptr<Transport> make_device_transport(std::shared_ptr<Transport> host,
                                                 const DeviceTransportOptions& options);

}  // namespace fullshard::comm
