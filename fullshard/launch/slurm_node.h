// SPDX-License-Identifier: Apache-2.0
// srun with one task per node: each task is a launcher that starts the ranks of its node.
#pragma once

#include <optional>
#include <string>

#include "fullshard/base/launcher_environment.h"

namespace fullshard::launch {

struct SlurmNode {
  int nodes = 1;
  int node_rank = 0;
  std::string master_address;  // the first node
  int master_port = 0;         // belongs to the job
};

// Absent outside a job step of several tasks. Throws Error for several tasks per node: each of them
// would start all the ranks.
std::optional<SlurmNode> find_slurm_node(const base::LauncherEnvironment::Slurm& slurm);

}  // namespace fullshard::launch
