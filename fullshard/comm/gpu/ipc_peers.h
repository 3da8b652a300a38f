// SPDX-License-Identifier: Apache-2.0
// The ranks that share a GPU as each other's processes: their marks on streams.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/gpu/ipc_memory.h"

namespace fullshard::comm {

// By rank; the own ones are at the own rank.
struct IpcPeers {
  std::vector<IpcEvents> ready;  // what a rank lends may be read
  std::vector<IpcEvents> done;   // a rank has read what the others lent
};

// Null for all ranks alike where one of them cannot share or open. Collective.
std::unique_ptr<IpcPeers> meet_ipc_peers(Backend& host, at::Device device);

}  // namespace fullshard::comm
