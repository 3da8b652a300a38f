// Collectives between GPUs through NCCL, one communicator and one stream per group: gathers and
// reductions of a model use different groups, so neither waits for the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>

#include "fullshard/comm/backend.h"

namespace fullshard {

bool is_built_with_nccl();

// Collective over the ranks of `host`, which carries the identifier that they meet by. A call that
// does not end within the limit is named.
std::shared_ptr<Backend> make_nccl_backend(Backend& host, at::Device device,
                                           const std::string& group,
                                           std::chrono::milliseconds limit);

}  // namespace fullshard
