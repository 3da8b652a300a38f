// SPDX-License-Identifier: Apache-2.0
// A world over gloo, with a store where ranks meet and a watch that tells who is alive. Where ranks
// of a host share memory, groups inside the host are theirs alone, and those across hosts connect
// only ranks of equal place.
#pragma once

#include <memory>
#include <vector>

#include "fullshard/comm/gloo/gloo_group.h"
#include "fullshard/comm/recorder.h"
#include "fullshard/comm/store/rendezvous.h"
#include "fullshard/comm/timeouts.h"
#include "fullshard/comm/transport.h"

namespace fullshard::comm {

class ShmDomain;

struct GlooOptions {
  int rank = 0;
  std::vector<int> hosts;  // of each rank; decides the order of sums
  bool loopback = false;   // all ranks are on this machine
  GlooDevice device{};     // on which this rank listens
  Timeouts timeouts{};
  std::shared_ptr<ShmDomain> domain{};  // of this host's ranks, in their order; none: all over gloo
};

// The ranks of the world on the host of `rank`, ascending.
std::vector<int> ranks_of_host(const std::vector<int>& hosts, int rank);

std::shared_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                               std::shared_ptr<Store> store,
                                               std::shared_ptr<Recorder> recorder);

}  // namespace fullshard::comm
