#include "fullshard/launch/slurm_node.h"

#include <charconv>

#include "fullshard/base/error.h"
#include "fullshard/base/slurm.h"

namespace fullshard {
namespace {

std::optional<int> number(const Variable& variable, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto text = variable(name);
    if (!text || text->empty()) continue;
    int value = 0;
    const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (problem != std::errc() || end != text->data() + text->size()) {
      fail_as(ErrorKind::usage, "environment: {} is '{}', expected a number", name, *text);
    }
    return value;
  }
  return std::nullopt;
}

std::string text(const Variable& variable, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto found = variable(name); found && !found->empty()) return *found;
  }
  return {};
}

}  // namespace

std::optional<SlurmNode> find_slurm_node(const Variable& variable) {
  const auto task = number(variable, {"SLURM_PROCID"});
  const auto tasks = number(variable, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  const auto nodes = number(variable, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
  // A batch script is task 0 of a step of one task, and salloc's shell has no task at all.
  if (!task || !tasks || !nodes || *tasks <= 1) return std::nullopt;
  if (*tasks != *nodes) {
    fail_as(
        ErrorKind::usage,
        "launch: srun started {} tasks on {} nodes, and each would start the ranks of its node; "
        "use srun --ntasks-per-node=1, or start the program without 'fullshard launch'",
        *tasks, *nodes);
  }
  const std::string list =
      text(variable, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (list.empty()) {
    fail_as(ErrorKind::usage,
            "launch: srun started {} tasks, but SLURM_STEP_NODELIST does not say where; give "
            "--nnodes, --node-rank and --master-addr",
            *tasks);
  }
  return SlurmNode{.nodes = *nodes,
                   .node_rank = number(variable, {"SLURM_NODEID"}).value_or(*task),
                   .master_address = expand_host_list(list).front(),
                   .master_port = port_of_job(text(variable, {"SLURM_JOB_ID", "SLURM_JOBID"}))};
}

}  // namespace fullshard
