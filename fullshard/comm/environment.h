// Who a process is among the ranks, read from the variables that launchers set. Reading is a pure
// function of the options and a lookup, so that every launcher can be tried without being there.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "fullshard/comm/world.h"

namespace fullshard {

struct Environment {
  std::string launcher;  // "options", "torchrun", "Open MPI", "PMI", "SLURM" or "none"
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank, local_size;
  std::string master_address;  // empty for one rank
  int master_port = 0;
  bool agent_store = false;  // torchrun's agent serves the store, not rank 0
  int restart = 0;           // how often the launcher has started the ranks again
  std::string secret;        // of the job; who does not know it cannot join
  std::string interface;     // of the network, where several hosts talk; empty: as it is found
  DeviceSums device_sums = DeviceSums::ordered;

  // Whether the launcher said that all ranks are on this host.
  bool is_one_host() const {
    return local_size == size || master_address == "127.0.0.1" || master_address == "localhost";
  }
};

using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

// Each field from the options if set there, else from the first launcher that is found: `fullshard
// launch` and torchrun (FULLSHARD_RANK before RANK, and so on), Open MPI, PMI, SLURM; else one
// rank. mpirun inside a SLURM job leaves SLURM's variables of the batch step in place, so MPI comes
// first. Variables that contradict each other are an Error that names them.
Environment read_environment(const WorldOptions& options, const Lookup& lookup);

}  // namespace fullshard
