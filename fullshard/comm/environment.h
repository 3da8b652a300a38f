// SPDX-License-Identifier: Apache-2.0
// Who a process is among the ranks, by the options and what its launcher told it. A pure function
// of both, so that every launcher can be tried without being there.
#pragma once

#include <optional>
#include <string>

#include "fullshard/base/launcher_environment.h"
#include "fullshard/comm/world_options.h"

namespace fullshard::comm {

struct Environment {
  std::string launcher;  // "options", "torchrun", "Open MPI", "PMI", "SLURM" or "none"
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank, local_size;
  std::string master_address;  // empty for one rank
  int master_port = 0;
  bool agent_store = false;    // torchrun's agent serves the store, not rank 0
  int restart = 0;             // how often the launcher has started the ranks again
  std::string secret;          // of the job; who does not know it cannot join
  std::string interface;       // of the network, where several hosts talk; empty: as it is found
  std::string nccl_interface;  // the same for NCCL, to which gloo's own variable says nothing
  DeviceSums device_sums = DeviceSums::ordered;

  // Whether the launcher said that all ranks are on this host.
  bool is_one_host() const {
    return local_size == size || master_address == "127.0.0.1" || master_address == "localhost";
  }
};

// Each field from the options if set there, else from the first launcher that is found: `fullshard
// launch` and torchrun (FULLSHARD_RANK before RANK, and so on), Open MPI, PMI, SLURM; else one
// rank. mpirun inside a SLURM job leaves SLURM's variables of the batch step in place, so MPI comes
// first. Variables that contradict each other are an Error that names them.
Environment read_environment(const WorldOptions& options,
                             const base::LauncherEnvironment& launcher);

}  // namespace fullshard::comm
