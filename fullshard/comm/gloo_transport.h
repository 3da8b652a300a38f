// A world over gloo: one process group per group of ranks, with a store where they meet and a watch
// that tells who is alive.
#pragma once

#include <memory>
#include <vector>

#include "fullshard/comm/gloo_group.h"
#include "fullshard/comm/rendezvous.h"
#include "fullshard/comm/transport.h"
#include "fullshard/comm/world.h"

namespace fullshard {

struct GlooOptions {
  int rank = 0;
  std::vector<int> hosts;  // of each rank; decides the order of sums
  bool loopback = false;   // all ranks are on this machine
  GlooDevice device{};     // on which this rank listens
  Timeouts timeouts{};
};

std::shared_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                               std::shared_ptr<Store> store,
                                               std::shared_ptr<Recorder> recorder);

}  // namespace fullshard
