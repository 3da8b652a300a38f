// SPDX-License-Identifier: Apache-2.0
// Collectives between GPUs through NCCL, one communicator and one stream per group: gathers and
// reductions of a model use different groups, so neither waits for the other. A communicator is
// made at its group's first call or warm-up: groups that nobody uses have none.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/gpu/stream_watch.h"
#include "fullshard/comm/world_options.h"

namespace fullshard::comm {

bool is_built_with_nccl();

struct NcclOptions {
  at::Device device = at::kCPU;
  std::string group = {};
  std::vector<int> hosts = {};  // of each rank of the group
  DeviceSums sums = DeviceSums::ordered;
  std::shared_ptr<StreamWatch> watch = {};
};

// `host` carries the identifier by which the ranks of its group meet, two or more of them, and
// knows who is missing when one is late. Collective in order, but nobody waits.
std::shared_ptr<Backend> make_nccl_backend(std::shared_ptr<Backend> host,
                                           const NcclOptions& options);

}  // namespace fullshard::comm
