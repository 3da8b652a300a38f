// SPDX-License-Identifier: Apache-2.0
// How the memory of each rank reaches the others: as open file descriptors over a private socket of
// rank 0, which collects one offer from each rank and hands all of them to everybody. Only
// processes of this user that know the job's secret take part.
#pragma once

#include <chrono>
#include <vector>

#include "fullshard/comm/shm/shm_descriptor.h"

namespace fullshard::comm {

class Rendezvous;

struct ShmOffer {
  int arena = -1;
  int lifeline = -1;
  int common = -1;  // rank 0 only
};

struct ShmPeers {
  std::vector<ShmDescriptor> arenas;     // by rank
  std::vector<ShmDescriptor> lifelines;  // by rank
  ShmDescriptor common;
};

// Collective. After `timeout` an Error on every rank that came, with the ranks that did not, by
// their `names` if those are not their numbers.
ShmPeers exchange_descriptors(Rendezvous& rendezvous, int rank, int size, const ShmOffer& own,
                              std::chrono::milliseconds timeout,
                              const std::vector<int>& names = {});

}  // namespace fullshard::comm
