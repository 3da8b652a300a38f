// SPDX-License-Identifier: Apache-2.0
// Ranks that are not there, for plans: World::fake with more to say, also on a device that is not
// there.
#pragma once

#include <memory>

#include "fullshard/comm/world/call_watch.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::comm {

struct FakeRanks {
  int size = 1;
  int rank = 0;
  int ranks_per_host = 8;
  at::Device device = at::kCPU;
  bool share_memory = false;  // those of a host, as over shm
  std::shared_ptr<CallWatch> watch = nullptr;
};

World fake_world(const FakeRanks& ranks);

}  // namespace fullshard::comm
