// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/launcher_environment.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "fullshard/base/error.h"
#include "fullshard/base/private_file.h"

namespace fullshard::base {
namespace {

class LauncherNames {
 public:
  explicit LauncherNames(const LauncherEnvironment::Lookup& lookup) : lookup_(lookup) {}

  // The first of the names that is set, else the last.
  LauncherVariable first(std::initializer_list<std::string> names) const {
    LauncherVariable variable;
    for (const std::string& name : names) {
      variable = {name, lookup_(name)};
      if (variable && !variable.text->empty()) break;
      variable.text.reset();
    }
    return variable;
  }
  LauncherVariable own(const std::string& name) const { return first({"FULLSHARD_" + name, name}); }
  LauncherVariable operator[](const std::string& name) const { return first({name}); }
  bool has(const std::string& name) const { return lookup_(name).has_value(); }  // empty ones too

 private:
  const LauncherEnvironment::Lookup& lookup_;
};

LauncherEnvironment::Slurm read_slurm(const LauncherNames& names) {
  return {.task = names["SLURM_PROCID"],
          .num_tasks = names.first({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}),
          .local_task = names["SLURM_LOCALID"],
          .node = names["SLURM_NODEID"],
          .num_nodes = names.first({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}),
          .tasks_of_nodes = names.first({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}),
          .tasks_per_node = names["SLURM_NTASKS_PER_NODE"],
          .hosts = names.first({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}),
          .job = names.first({"SLURM_JOB_ID", "SLURM_JOBID"})};
}

bool is_several(const std::optional<std::string>& count) {
  return count && !count->empty() && *count != "0" && *count != "1";
}

bool tells_a_rank(const LauncherNames& names, const LauncherEnvironment::Lookup& lookup) {
  const bool is_task = names.has("SLURM_PROCID") && names.has("SLURM_STEP_ID");
  return names.has("FULLSHARD_RANK") || names.has("FULLSHARD_WORLD_SIZE") ||
         (names.has("RANK") && names.has("WORLD_SIZE")) || is_several(lookup("WORLD_SIZE")) ||
         names.has("OMPI_COMM_WORLD_RANK") || names.has("PMI_RANK") ||
         (is_task && is_several(lookup("SLURM_NTASKS")));
}

}  // namespace

std::optional<int> LauncherVariable::number() const {
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, problem] = std::from_chars(text->data(), end, value);
  if (problem != std::errc() || stop != end || value < 0) {
    fail_as(ErrorKind::usage, "environment: {} is '{}', expected a number", name, *text);
  }
  return value;
}

LauncherEnvironment LauncherEnvironment::read(const Lookup& lookup) {
  const LauncherNames names(lookup);
  LauncherEnvironment found;
  found.torchrun = {
      .rank = names.own("RANK"),
      .size = names.own("WORLD_SIZE"),
      .local_rank = names.own("LOCAL_RANK"),
      // The last is deepspeed's.
      .local_size = names.first({"FULLSHARD_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE"})};
  found.open_mpi = {.rank = names["OMPI_COMM_WORLD_RANK"],
                    .size = names["OMPI_COMM_WORLD_SIZE"],
                    .local_rank = names["OMPI_COMM_WORLD_LOCAL_RANK"],
                    .local_size = names["OMPI_COMM_WORLD_LOCAL_SIZE"]};
  found.pmi = {.rank = names["PMI_RANK"],
               .size = names["PMI_SIZE"],
               .local_rank = names["MPI_LOCALRANKID"],
               .local_size = names["MPI_LOCALNRANKS"]};
  found.mpi_job = names["PMIX_NAMESPACE"];
  found.slurm = read_slurm(names);
  found.is_rank = tells_a_rank(names, lookup);
  found.master_address = names.own("MASTER_ADDR");
  found.master_port = names.own("MASTER_PORT");
  found.agent_store = names["TORCHELASTIC_USE_AGENT_STORE"];
  found.restart = names["TORCHELASTIC_RESTART_COUNT"];
  found.socket_interface = names["FULLSHARD_SOCKET_IFNAME"];
  found.gloo_interface = names.first({"FULLSHARD_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"});
  found.device_sums = names["FULLSHARD_DEVICE_SUMS"];
  found.secret = names["FULLSHARD_JOB_SECRET"];
  found.secret_file = names["FULLSHARD_JOB_SECRET_FILE"];
  found.meeting = names["FULLSHARD_MEETING"];
  found.terminal = names[kTerminal];
  found.run_lock = names[kRunLock];
  found.prompts = names[kPrompts];
  found.measured = names[kMeasured];
  found.config = {.file = names["FULLSHARD_CONFIG"],
                  .fsdp = names["FULLSHARD_FSDP"],
                  .fsdp_config = names["FULLSHARD_FSDP_CONFIG"],
                  .overrides = names["FULLSHARD_SET"],
                  .allow_unknown = names["FULLSHARD_ALLOW_UNKNOWN"]};
  return found;
}

LauncherEnvironment LauncherEnvironment::of_process() {
  return read([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

std::string LauncherEnvironment::job_secret() const {
  if (secret) return *secret.text;
  return secret_file ? read_private_line(*secret_file.text) : "";
}

}  // namespace fullshard::base
