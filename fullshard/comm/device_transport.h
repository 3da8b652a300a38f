// Ranks whose models lie on accelerators. Collectives over host tensors go where they always went,
// with its ways of naming who is late; those over device tensors take a link of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>

#include "fullshard/comm/transport.h"

namespace fullshard {

enum class DeviceLink {
  self,    // one rank
  shared,  // through each other's device memory: ranks of one host that share a GPU; staged
           // where the system forbids that
  staged,  // through host memory: hosts without nccl
  nccl     // a GPU for every rank
};

// "cpu"; "cuda": the GPU number `local_rank`, counted round when ranks share; "cuda:N". An error
// names what is missing: a build with CUDA, a driver, that GPU.
at::Device choose_device(const std::string& wanted, int local_rank);
int num_cuda_devices();  // visible ones; 0 without CUDA

// `limit`: how long a call of nccl may take before it is named.
std::shared_ptr<Transport> make_device_transport(std::shared_ptr<Transport> host, at::Device device,
                                                 DeviceLink link, std::chrono::milliseconds limit);

}  // namespace fullshard
