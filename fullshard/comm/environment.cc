// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/environment.h"

#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/slurm.h"

namespace fullshard::comm {
namespace {

constexpr int kDefaultPort = 29500;

template <class... Parts>
void require(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) throw Error(fmt::format(format, std::forward<Parts>(parts)...), ErrorKind::usage);
}

// Rank and size come together or not at all.
bool take_pair(Environment& environment, const std::string& launcher,
               const base::LauncherVariable& rank, const base::LauncherVariable& size) {
  if (!rank && !size) return false;
  require(rank && size, "environment: {} is set but {} is not; set both or neither",
          rank ? rank.name : size.name, rank ? size.name : rank.name);
  environment.launcher = launcher;
  environment.rank = *rank.number();
  environment.size = *size.number();
  require(environment.size > 0, "environment: {} is 0, expected at least 1", size.name);
  require(environment.rank < environment.size, "environment: {} is {}, but {} is {}", rank.name,
          environment.rank, size.name, environment.size);
  return true;
}

bool take_ranks(Environment& environment, const std::string& launcher,
                const base::LauncherEnvironment::Ranks& ranks) {
  if (!take_pair(environment, launcher, ranks.rank, ranks.size)) return false;
  environment.local_rank = ranks.local_rank.number();
  environment.local_size = ranks.local_size.number();
  return true;
}

int job_port(const base::LauncherVariable& job) {
  return job ? base::port_of_job(*job.text) : kDefaultPort;
}

bool from_mpi(Environment& environment, const base::LauncherEnvironment& launcher) {
  if (!take_ranks(environment, "Open MPI", launcher.open_mpi) &&
      !take_ranks(environment, "PMI", launcher.pmi)) {
    return false;
  }
  if (environment.local_size == environment.size) environment.master_address = "127.0.0.1";
  environment.master_port = job_port(launcher.mpi_job);
  return true;
}

bool from_slurm(Environment& environment, const base::LauncherEnvironment::Slurm& slurm) {
  // An allocation alone (salloc) sets the number of tasks, but no process id: no rank runs in it.
  if (!slurm.task || !take_pair(environment, "SLURM", slurm.task, slurm.num_tasks)) return false;
  environment.local_rank = slurm.local_task.number();
  const auto node = slurm.node.number();
  if (slurm.tasks_of_nodes && node) {
    const std::vector<int> counts = base::expand_counts(*slurm.tasks_of_nodes.text);
    if (static_cast<size_t>(*node) < counts.size()) {
      environment.local_size = counts[static_cast<size_t>(*node)];
    }
  } else {
    environment.local_size = slurm.tasks_per_node.number();
  }
  if (slurm.hosts) environment.master_address = base::expand_host_list(*slurm.hosts.text).front();
  environment.master_port = job_port(slurm.job);
  return true;
}

void take_options(Environment& environment, const WorldOptions& options) {
  require(!options.rank || options.size || environment.launcher != "none",
          "world: options.rank is {} but options.size is not set; set both", *options.rank);
  if (options.size && environment.launcher == "none") {
    require(options.rank || *options.size == 1,
            "world: options.size is {} but options.rank is not set; set both", *options.size);
    environment.launcher = "options";
  }
  environment.rank = options.rank.value_or(environment.rank);
  environment.size = options.size.value_or(environment.size);
  if (options.local_rank) environment.local_rank = options.local_rank;
  if (options.local_size) environment.local_size = options.local_size;
  require(environment.size > 0, "world: size is {}, expected at least 1", environment.size);
  require(environment.rank >= 0 && environment.rank < environment.size,
          "world: rank is {}, expected 0 to {}", environment.rank, environment.size - 1);
  require(!environment.local_rank || !environment.local_size ||
              *environment.local_rank < *environment.local_size,
          "world: local rank is {}, but {} ranks are on this host", *environment.local_rank,
          *environment.local_size);
}

void take_master(Environment& environment, const WorldOptions& options,
                 const base::LauncherEnvironment& launcher) {
  const base::LauncherVariable& address = launcher.master_address;
  const base::LauncherVariable& port = launcher.master_port;
  if (address) environment.master_address = *address.text;
  if (port) environment.master_port = *port.number();
  if (options.master_address) environment.master_address = *options.master_address;
  if (options.master_port) environment.master_port = *options.master_port;
  if (environment.size == 1) return;
  require(!environment.master_address.empty(),
          "environment: rank {} of {} ({}) knows no master address; set MASTER_ADDR to rank 0's "
          "host",
          environment.rank, environment.size, environment.launcher);
  if (environment.master_port == 0) environment.master_port = kDefaultPort;
  require(environment.master_port < 65536, "environment: {} is {}, expected 1 to 65535", port.name,
          environment.master_port);
}

DeviceSums read_device_sums(const base::LauncherVariable& variable) {
  if (!variable || *variable.text == "ordered") return DeviceSums::ordered;
  require(*variable.text == "nccl", "environment: {} is '{}', expected ordered or nccl",
          variable.name, *variable.text);
  return DeviceSums::nccl;
}

}  // namespace

Environment read_environment(const WorldOptions& options,
                             const base::LauncherEnvironment& launcher) {
  Environment environment;
  environment.launcher = "none";
  // Options that say who this is make the variables of any launcher irrelevant.
  if (!options.rank || !options.size) {
    [[maybe_unused]] const bool found = take_ranks(environment, "torchrun", launcher.torchrun) ||
                                        from_mpi(environment, launcher) ||
                                        from_slurm(environment, launcher.slurm);
  }
  take_options(environment, options);
  take_master(environment, options, launcher);
  environment.agent_store =
      environment.launcher == "torchrun" && launcher.agent_store.text == "True";
  environment.restart = launcher.restart.number().value_or(0);
  environment.secret = launcher.job_secret();
  environment.interface = launcher.gloo_interface.text_or_empty();
  environment.nccl_interface = launcher.socket_interface.text_or_empty();
  environment.device_sums = options.device_sums.value_or(read_device_sums(launcher.device_sums));
  return environment;
}

}  // namespace fullshard::comm
