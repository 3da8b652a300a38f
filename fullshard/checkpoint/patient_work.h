// SPDX-License-Identifier: Apache-2.0
// How ranks wait for each other in saves and loads. A disk may be slow, and that is no reason for a
// rank to be given up: there is more time than in a step, and no end where one rank works alone.
#pragma once

#include <functional>

#include "fullshard/comm/world/mesh.h"

namespace fullshard::checkpoint {

// All ranks, late only after timeouts.checkpoint.
inline Communicator patient_ranks(const Mesh& mesh) {
  return mesh.everyone().limited_by(TimeLimit::checkpoint);
}

// Collective. Runs `act` on rank 0; all return when it has ended. It must not throw: the others
// would not hear of it.
inline void wait_for_rank_0(const Communicator& ranks, const std::function<void()>& act) {
  if (ranks.rank() == 0) act();
  ranks.limited_by(TimeLimit::none).barrier("what rank 0 writes");
}

}  // namespace fullshard::checkpoint
