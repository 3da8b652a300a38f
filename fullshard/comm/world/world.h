// SPDX-License-Identifier: Apache-2.0
// Who the ranks are: found in the environment, or made as threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/comm/communicator.h"
#include "fullshard/comm/timeouts.h"
#include "fullshard/comm/world_options.h"

namespace fullshard {

// A value handle; copies are the same world. Destroying the last one says goodbye to the others.
class World {
 public:
  // rank, size and hosts from: the options, FULLSHARD_* or torchrun's variables (RANK, WORLD_SIZE,
  // LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), Open MPI / PMI, SLURM (SLURM_PROCID,
  // SLURM_NTASKS, ...); else one rank. Collective when there is more than one rank.
  static World from_environment(const comm::WorldOptions& options = {});
  static World single(at::Device device = at::kCPU);  // one rank, backend "self"
  // A pretence of `size` ranks seen from `rank`: collectives are recorded, nothing leaves the
  // process; every other rank is taken to hold what this one holds.
  static World fake(int size, int rank = 0, int ranks_per_host = 8);

  int rank() const;
  int size() const;
  int local_rank() const;  // index among the ranks of this host
  int local_size() const;  // ranks on this host
  int num_hosts() const;
  int ranks_per_host() const;   // 0 where hosts hold different numbers of them
  int host_of(int rank) const;  // hosts counted from 0 in order of their lowest rank
  std::string_view backend() const;
  at::Device device() const;  // where models are sharded; collectives take host tensors as well
  const Timeouts& timeouts() const;

  const Communicator& communicator() const;  // all ranks, group "world"
  Recorder& recorder() const;

  // An Error once a collective between GPUs was given up, after a rank died or did not come: from
  // then on calls look as if they had ended, and what they left is garbage. Asked before an update
  // counts and before anything is saved.
  void check_sound() const;

  // Cuts the world into groups of equal `colour`; every rank of the world calls it at the same
  // point. Ranks keep their order.
  Communicator split(int colour, const std::string& group) const;
  // The same where everyone knows all the groups: they hold every rank once, in the order that it
  // has in its group, and have equal sizes. Collective, but nobody waits.
  Communicator split(const std::vector<std::vector<int>>& groups, const std::string& group) const;

  class Impl;
  explicit World(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

// Runs `body` on `ranks` threads of this process, each with its own World over the same backend
// code that processes use. Returns when all have ended; throws the first rank's error by time
// (errors that only report another rank's end come after). Used by tests and by programs that want
// ranks as threads.
struct ThreadRanks {
  int ranks = 2;
  std::string backend = "shm";  // shm or gloo
  int ranks_per_host = 0;       // 0: all on one host; pretends several hosts otherwise (gloo)
  std::vector<int> hosts{};     // of each rank, where they do not follow each other host by host
  Timeouts timeouts{};
};
void run_ranks(const ThreadRanks& options, const std::function<void(const World&)>& body);

}  // namespace fullshard
