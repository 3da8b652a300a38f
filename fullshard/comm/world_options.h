// SPDX-License-Identifier: Apache-2.0
// What a rank may say about its world, beside the environment.
#pragma once

#include <optional>
#include <string>

#include "fullshard/comm/timeouts.h"

namespace fullshard::comm {

// How device tensors are summed between GPUs.
enum class DeviceSums {
  ordered,  // exchanged as they are, added in fp32 in the order of ranks: the bits of the CPU
  nccl      // by NCCL's own reductions: 16-bit values are added and averaged in 16 bits
};

struct WorldOptions {
  // What is set here wins over the environment.
  std::optional<int> rank = {}, size = {}, local_rank = {}, local_size = {};
  std::optional<std::string> master_address = {};
  std::optional<int> master_port = {};
  // auto: shm when all ranks are on one host, else gloo; between GPUs of their own, nccl
  std::string backend = "auto";
  std::string device = "cpu";  // cpu; cuda: the GPU of this rank among its host's; or cuda:N
  std::optional<DeviceSums> device_sums = {};  // else FULLSHARD_DEVICE_SUMS, else ordered
  Timeouts timeouts{};
};

}  // namespace fullshard::comm
