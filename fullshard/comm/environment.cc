#include "fullshard/comm/environment.h"

#include <charconv>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/private_file.h"
#include "fullshard/base/slurm.h"

namespace fullshard {
namespace {

constexpr int kDefaultPort = 29500;

template <class... Parts>
void require(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) throw Error(fmt::format(format, std::forward<Parts>(parts)...), ErrorKind::usage);
}

int to_number(std::string_view text, std::string_view name) {
  int number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(problem == std::errc() && end == text.data() + text.size() && number >= 0,
          "environment: {} is '{}', expected a number", name, text);
  return number;
}

// A variable together with its name, for messages.
struct Variable {
  std::string name;
  std::optional<std::string> text;

  explicit operator bool() const { return text.has_value(); }
  std::optional<int> number() const {
    return text ? std::optional(to_number(*text, name)) : std::nullopt;
  }
};

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  // The first of the names that is set, else the last.
  Variable first(std::initializer_list<std::string> names) const {
    Variable variable;
    for (const std::string& name : names) {
      variable = {name, lookup_(name)};
      if (variable && !variable.text->empty()) break;
      variable.text.reset();
    }
    return variable;
  }
  Variable own(const std::string& name) const { return first({"FULLSHARD_" + name, name}); }

 private:
  const Lookup& lookup_;
};

// Rank and size come together or not at all.
bool take_pair(Environment& environment, const std::string& launcher, const Variable& rank,
               const Variable& size) {
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

bool from_torchrun(Environment& environment, const Variables& variables) {
  if (!take_pair(environment, "torchrun", variables.own("RANK"), variables.own("WORLD_SIZE"))) {
    return false;
  }
  environment.local_rank = variables.own("LOCAL_RANK").number();
  // The last is deepspeed's.
  environment.local_size =
      variables.first({"FULLSHARD_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE"}).number();
  return true;
}

bool from_mpi(Environment& environment, const Variables& variables) {
  Variable local_rank, local_size;
  if (take_pair(environment, "Open MPI", variables.first({"OMPI_COMM_WORLD_RANK"}),
                variables.first({"OMPI_COMM_WORLD_SIZE"}))) {
    local_rank = variables.first({"OMPI_COMM_WORLD_LOCAL_RANK"});
    local_size = variables.first({"OMPI_COMM_WORLD_LOCAL_SIZE"});
  } else if (take_pair(environment, "PMI", variables.first({"PMI_RANK"}),
                       variables.first({"PMI_SIZE"}))) {
    local_rank = variables.first({"MPI_LOCALRANKID"});
    local_size = variables.first({"MPI_LOCALNRANKS"});
  } else {
    return false;
  }
  environment.local_rank = local_rank.number();
  environment.local_size = local_size.number();
  if (environment.local_size == environment.size) environment.master_address = "127.0.0.1";
  const Variable job = variables.first({"PMIX_NAMESPACE"});
  environment.master_port = job ? port_of_job(*job.text) : kDefaultPort;
  return true;
}

bool from_slurm(Environment& environment, const Variables& variables) {
  const Variable rank = variables.first({"SLURM_PROCID"});
  const Variable size = variables.first({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  // An allocation alone (salloc) sets the number of tasks, but no process id: no rank runs in it.
  if (!rank || !take_pair(environment, "SLURM", rank, size)) return false;
  environment.local_rank = variables.first({"SLURM_LOCALID"}).number();
  const Variable per_node = variables.first({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  const auto node = variables.first({"SLURM_NODEID"}).number();
  if (per_node && node) {
    const std::vector<int> counts = expand_counts(*per_node.text);
    if (static_cast<size_t>(*node) < counts.size()) {
      environment.local_size = counts[static_cast<size_t>(*node)];
    }
  } else {
    environment.local_size = variables.first({"SLURM_NTASKS_PER_NODE"}).number();
  }
  const Variable hosts =
      variables.first({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (hosts) environment.master_address = expand_host_list(*hosts.text).front();
  const Variable job = variables.first({"SLURM_JOB_ID", "SLURM_JOBID"});
  environment.master_port = job ? port_of_job(*job.text) : kDefaultPort;
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
                 const Variables& variables) {
  const Variable address = variables.own("MASTER_ADDR");
  const Variable port = variables.own("MASTER_PORT");
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

DeviceSums read_device_sums(const Variable& variable) {
  if (!variable || *variable.text == "ordered") return DeviceSums::ordered;
  require(*variable.text == "nccl", "environment: {} is '{}', expected ordered or nccl",
          variable.name, *variable.text);
  return DeviceSums::nccl;
}

}  // namespace

Environment read_environment(const WorldOptions& options, const Lookup& lookup) {
  const Variables variables(lookup);
  Environment environment;
  environment.launcher = "none";
  // Options that say who this is make the variables of any launcher irrelevant.
  if (!options.rank || !options.size) {
    [[maybe_unused]] const bool found = from_torchrun(environment, variables) ||
                                        from_mpi(environment, variables) ||
                                        from_slurm(environment, variables);
  }
  take_options(environment, options);
  take_master(environment, options, variables);
  const Variable agent = variables.first({"TORCHELASTIC_USE_AGENT_STORE"});
  environment.agent_store = environment.launcher == "torchrun" && agent && *agent.text == "True";
  environment.restart = variables.first({"TORCHELASTIC_RESTART_COUNT"}).number().value_or(0);
  environment.secret = variables.first({"FULLSHARD_JOB_SECRET"}).text.value_or("");
  const Variable secret_file = variables.first({"FULLSHARD_JOB_SECRET_FILE"});
  if (environment.secret.empty() && secret_file) {
    environment.secret = read_private_line(*secret_file.text);
  }
  environment.interface =
      variables.first({"FULLSHARD_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}).text.value_or("");
  environment.device_sums =
      options.device_sums.value_or(read_device_sums(variables.first({"FULLSHARD_DEVICE_SUMS"})));
  return environment;
}

}  // namespace fullshard
