// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/launch_flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/refuse_nan.h"
#include "fullshard/cli/flags/value_checks.h"
#include "fullshard/launch/cores.h"
#include "fullshard/launch/devices.h"
#include "fullshard/launch/remote_command.h"
#include "fullshard/launch/slurm_node.h"

namespace fullshard::cli {
namespace {

constexpr int kMostRanks = 4096;

template <class... Parts>
void require(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) fail_as(ErrorKind::usage, format, std::forward<Parts>(parts)...);
}

// The first line of standard input; byte by byte, because the rest is for the supervisor.
std::string read_secret() {
  std::string secret;
  for (char letter; ::read(STDIN_FILENO, &letter, 1) == 1 && letter != '\n';) secret += letter;
  require(!secret.empty(), "launch: no token came through standard input");
  return secret;
}

// "0,1,3": the GPUs that the ranks of this host may see.
std::vector<int> device_list(const std::string& text) {
  std::vector<int> devices;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    int device = -1;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), device);
    require(problem == std::errc() && end == word.data() + word.size() && device >= 0,
            "launch: gpu_ids is '{}', expected 'all' or numbers as in 0,1", text);
    devices.push_back(device);
  }
  return devices;
}

}  // namespace

LaunchFlags::LaunchFlags(CLI::App& command) {
  add_ranks(command);
  add_output(command);
  add_failures(command);
  add_hosts(command);
  add_internal(command);
  refuse_nan(command);
}

void LaunchFlags::add_ranks(CLI::App& command) {
  command.add_option(
      "-n,--ranks,--nproc-per-node,--num-gpus", ranks_,
      "ranks per host: a number, gpu, cpu or auto; one per visible GPU if not given");
  command
      .add_option("--num-processes", num_processes_, "ranks on all hosts together (as accelerate)")
      ->check(within(1, kMostRanks * 1024));
  command.add_option("--bind", bind_, "cores: every rank has cores of its own; or none")
      ->check(one_of({"cores", "none"}))
      ->capture_default_str();
}

void LaunchFlags::add_output(CLI::App& command) {
  command.add_option("--log-dir", options_.log_dir, "keep every rank's output as DIR/rank-N.log");
  command.add_option("--tee", tee_, "whose output is shown here: all, 0 (rank 0's) or none")
      ->check(one_of({"all", "0", "none"}));
}

void LaunchFlags::add_failures(CLI::App& command) {
  command
      .add_option("--notice", notice_seconds_,
                  "seconds that the others may take to end by themselves when a rank has failed")
      ->capture_default_str()
      ->check(at_least_zero());
  command
      .add_option("--grace", grace_seconds_,
                  "seconds that ranks may take to end before they are killed; train needs none, "
                  "it ends when it has saved")
      ->capture_default_str()
      ->check(at_least_zero());
  command
      .add_option("--max-restarts", options_.max_restarts,
                  "how often all ranks are started again after a failure")
      ->capture_default_str()
      ->check(at_least_zero());
}

void LaunchFlags::add_hosts(CLI::App& command) {
  const std::string group = "Several hosts";
  command
      .add_option("--nnodes,--nnode,--num-nodes,--num-machines", nodes_,
                  "how many hosts; each starts its own launcher, or the first ones of the "
                  "hostfile")
      ->check(within(1, 1 << 20))
      ->group(group);
  command.add_option("--node-rank,--machine-rank", node_rank_, "this host's number, from 0")
      ->check(at_least_zero())
      ->group(group);
  command
      .add_option("--master-addr,--main-process-ip", options_.master_address,
                  "the host of node rank 0, as the others reach it")
      ->group(group);
  command
      .add_option("--master-port,--main-process-port", options_.master_port,
                  "where the ranks meet; a free one on one host, 29500 on several")
      ->check(within(1, 65535))
      ->group(group);
  command.add_option("-H,--hostfile", hostfile_, "a file of lines 'HOST slots=N', used over ssh")
      ->group(group);
  command.add_option("-i,--include", include_, "HOST[:SLOT,SLOT][@HOST...] of it to use")
      ->group(group);
  command.add_option("-e,--exclude", exclude_, "HOST[:SLOT,SLOT][@HOST...] of it to leave out")
      ->group(group);
  command.add_option("--ssh", hosts_.ssh, "the command that reaches other hosts")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--export", hosts_.exports, "a variable that ranks on other hosts get as well")
      ->expected(1)
      ->take_all()
      ->group(group);
}

// What one launcher tells another; not part of the interface, so not in the help.
void LaunchFlags::add_internal(CLI::App& command) {
  command.add_flag("--controlled", is_controlled_)->group("");
  command.add_flag("--saves-itself", options_.saves_itself)->group("");
  command.add_flag("--logs-wait", options_.logs_wait)->group("");
  command.add_option("--first-rank", options_.first_rank)->group("");
  command.add_option("--world-size", options_.world_size)->group("");
  command.add_option("--restart-count", options_.restart_count)->group("");
  command.add_option("--devices", options_.devices)->delimiter(',')->group("");
}

int LaunchFlags::ranks_per_node(int nodes) const {
  if (num_processes_) {
    require(ranks_.empty(), "launch: --ranks and --num-processes are both given; use one of them");
    require(*num_processes_ % nodes == 0,
            "launch: {} processes on {} hosts do not divide evenly; use a hostfile with slots",
            *num_processes_, nodes);
    return *num_processes_ / nodes;
  }
  if (ranks_ == "cpu") return launch::num_usable_cores();
  const int gpus = launch::num_visible_gpus();
  if (ranks_.empty() && default_ranks_ > 0) return default_ranks_;
  if (ranks_ == "auto") return gpus > 0 ? gpus : launch::num_usable_cores();
  if (ranks_.empty() || ranks_ == "gpu") {
    require(gpus > 0,
            "launch: no GPU is visible on this host; set the number of ranks with --ranks N");
    return gpus;
  }
  int ranks = 0;
  const auto [end, problem] = std::from_chars(ranks_.data(), ranks_.data() + ranks_.size(), ranks);
  require(problem == std::errc() && end == ranks_.data() + ranks_.size() && ranks >= 1 &&
              ranks <= kMostRanks,
          "launch: --ranks is '{}', expected 1 to {}, gpu, cpu or auto", ranks_, kMostRanks);
  return ranks;
}

// Flags win; the hosts of a job step are used only where no flag names them.
void LaunchFlags::take_slurm() {
  if (nodes_ || node_rank_ || is_controlled_) return;
  const auto slurm = launch::find_slurm_node(base::LauncherEnvironment::of_process().slurm);
  if (!slurm) return;
  nodes_ = slurm->nodes;
  node_rank_ = slurm->node_rank;
  if (options_.master_address.empty()) options_.master_address = slurm->master_address;
  if (options_.master_port == 0) options_.master_port = slurm->master_port;
}

// The hostfile's hosts, or this host's GPUs, without those that flags exclude.
std::vector<launch::Host> LaunchFlags::chosen_hosts() const {
  std::vector<launch::Host> hosts;
  if (!hostfile_.empty()) {
    hosts = launch::read_hostfile(hostfile_);
  } else {
    hosts = {{"localhost", std::vector<int>(static_cast<size_t>(ranks_per_node(1)))}};
    std::iota(hosts[0].slots.begin(), hosts[0].slots.end(), 0);
  }
  hosts = launch::filter_hosts(hosts, include_, exclude_);
  if (nodes_) {
    const auto wanted = static_cast<size_t>(*nodes_);
    require(wanted <= hosts.size(), "launch: {} hosts asked for, but {} has {}", wanted, hostfile_,
            hosts.size());
    hosts.resize(wanted);
  }
  if (hostfile_.empty() || (ranks_.empty() && !num_processes_)) return hosts;
  const auto ranks = static_cast<size_t>(ranks_per_node(static_cast<int>(hosts.size())));
  for (launch::Host& host : hosts) {
    require(ranks <= host.slots.size(),
            "launch: {} ranks per host asked for, but host {} has {} slots", ranks, host.name,
            host.slots.size());
    host.slots.resize(ranks);
  }
  return hosts;
}

launch::LaunchResult LaunchFlags::start_here() {
  take_slurm();
  options_.nodes = nodes_.value_or(1);
  require(
      options_.nodes == 1 || node_rank_.has_value(),
      "launch: {} nodes, but this node's rank is unknown; give --node-rank, from 0, or --hostfile",
      options_.nodes);
  options_.node_rank = node_rank_.value_or(0);
  options_.ranks = ranks_per_node(options_.nodes);
  if (is_controlled_) {
    options_.secret = read_secret();
    options_.control = STDIN_FILENO;
  }
  return launch::launch(options_);
}

bool LaunchFlags::starts_rank_zero() {
  if (chooses_hosts()) {
    const std::vector<launch::Host> hosts = chosen_hosts();
    return hosts.size() == 1 && launch::is_this_host(hosts.front().name);
  }
  take_slurm();
  return node_rank_.value_or(0) == 0;
}

bool LaunchFlags::chooses_hosts() const {
  return !hostfile_.empty() || !include_.empty() || !exclude_.empty();
}

launch::LaunchResult LaunchFlags::start(const std::vector<std::string>& command) {
  options_.command = command;
  const auto time = [](double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  };
  options_.notice = time(notice_seconds_);
  options_.grace = time(grace_seconds_);
  options_.tee = tee_ == "none" ? launch::Tee::none
                 : tee_ == "0"  ? launch::Tee::first
                                : launch::Tee::all;
  options_.binding = bind_ == "cores" ? launch::Binding::cores : launch::Binding::none;
  if (!chooses_hosts()) return start_here();

  require(!node_rank_, "launch: --node-rank and a choice of hosts are both given; use one of them");
  hosts_.hosts = chosen_hosts();
  if (hosts_.hosts.size() == 1 && launch::is_this_host(hosts_.hosts.front().name)) {
    const launch::Host& host = hosts_.hosts.front();
    options_.ranks = static_cast<int>(host.slots.size());
    if (host.slots.back() != options_.ranks - 1) options_.devices = host.slots;
    return launch::launch(options_);
  }
  hosts_.launcher = std::filesystem::read_symlink("/proc/self/exe").string();
  return launch::launch_hosts(options_, hosts_);
}

int LaunchFlags::world_size() {
  if (options_.world_size) return *options_.world_size;
  if (chooses_hosts()) {
    int ranks = 0;
    for (const launch::Host& host : chosen_hosts()) ranks += static_cast<int>(host.slots.size());
    return ranks;
  }
  take_slurm();
  return ranks_per_node(nodes_.value_or(1)) * nodes_.value_or(1);
}

int LaunchFlags::ranks_per_host() { return nodes_.value_or(1) > 1 ? world_size() / *nodes_ : 0; }

bool LaunchFlags::names_ranks() const {
  return !ranks_.empty() || num_processes_ || chooses_hosts() || is_controlled_;
}

void LaunchFlags::keep_logs_in(const std::string& folder) {
  if (options_.log_dir.empty()) options_.log_dir = folder;
}

void LaunchFlags::show_only_first() {
  if (tee_.empty()) tee_ = "0";
}

void LaunchFlags::set_default_ranks(int ranks) { default_ranks_ = ranks; }

void LaunchFlags::add_variable(const std::string& variable) {
  const size_t split = variable.find('=');
  ::setenv(variable.substr(0, split).c_str(), variable.substr(split + 1).c_str(), 1);
}

// A file gives the number of ranks on all hosts together. Hosts given by a flag or by srun take
// precedence over the file's.
void LaunchFlags::take(const LaunchPlan& plan) {
  if (ranks_.empty() && !num_processes_ && plan.ranks.value) {
    num_processes_ = static_cast<int>(*plan.ranks.value);
  }
  if (options_.master_port == 0 && plan.port.value) {
    options_.master_port = static_cast<int>(*plan.port.value);
  }
  if (bind_ == "none" && plan.bind_cores.value) bind_ = "cores";
  if (options_.devices.empty() && plan.gpu_ids.value != "all" && plan.gpu_ids.value != "") {
    options_.devices = device_list(plan.gpu_ids.value);
  }
  if (hostfile_.empty() && plan.hostfile.value) hostfile_ = *plan.hostfile.value;
  if (include_.empty() && plan.include.value) include_ = *plan.include.value;
  if (exclude_.empty() && plan.exclude.value) exclude_ = *plan.exclude.value;
  if (chooses_hosts()) {  // over ssh, this host tells each other host its node rank
    if (num_processes_ && ranks_.empty() && plan.ranks.value) num_processes_.reset();
    return;
  }
  if (!nodes_ && !node_rank_ && plan.machines.value > 1) {
    nodes_ = static_cast<int>(plan.machines.value);
    node_rank_ = static_cast<int>(plan.machine_rank.value);
  }
  if (nodes_.value_or(1) > 1 && options_.master_address.empty() && plan.address.value) {
    options_.master_address = *plan.address.value;
  }
}

}  // namespace fullshard::cli
