// SPDX-License-Identifier: Apache-2.0
// Collectives of device tensors between processes that share one GPU, where nccl refuses: each rank
// reads its peers' device memory through CUDA IPC, on a stream of its own. Sums have the bits of
// the host's. The hosts of the ranks meet twice in a call, to hand over where memory lies and to
// know that everyone's reading is issued; their streams are ordered by events, no host waits for a
// GPU.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/gpu/stream_watch.h"

namespace fullshard::comm {

// Null, for all ranks of the group alike, where CUDA IPC does not serve: the host's ranks see no
// common memory, ranks use different GPUs, there are over 64 of them, or the system refuses.
// Collective. `watch` names a call that does not end.
std::shared_ptr<Backend> make_ipc_backend(std::shared_ptr<Backend> host, at::Device device,
                                          std::shared_ptr<StreamWatch> watch);

}  // namespace fullshard::comm
