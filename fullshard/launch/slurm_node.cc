// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/slurm_node.h"

#include "fullshard/base/error.h"
#include "fullshard/base/slurm.h"

namespace fullshard::launch {

std::optional<SlurmNode> find_slurm_node(const base::LauncherEnvironment::Slurm& slurm) {
  const auto task = slurm.task.number();
  const auto tasks = slurm.num_tasks.number();
  const auto nodes = slurm.num_nodes.number();
  // A batch script is task 0 of a step of one task, and salloc's shell has no task at all.
  if (!task || !tasks || !nodes || *tasks <= 1) return std::nullopt;
  if (*tasks != *nodes) {
    fail_as(
        ErrorKind::usage,
        "launch: srun started {} tasks on {} nodes, and each would start the ranks of its node; "
        "use srun --ntasks-per-node=1, or start the program without 'fullshard launch'",
        *tasks, *nodes);
  }
  if (!slurm.hosts) {
    fail_as(ErrorKind::usage,
            "launch: srun started {} tasks, but SLURM_STEP_NODELIST does not say where; give "
            "--nnodes, --node-rank and --master-addr",
            *tasks);
  }
  return SlurmNode{.nodes = *nodes,
                   .node_rank = slurm.node.number().value_or(*task),
                   .master_address = base::expand_host_list(*slurm.hosts.text).front(),
                   .master_port = base::port_of_job(slurm.job.text_or_empty())};
}

}  // namespace fullshard::launch
