// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/launch_hosts.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string_view>

#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/launch/job_secret.h"
#include "fullshard/launch/keeper.h"
#include "fullshard/launch/rank_environment.h"
#include "fullshard/launch/remote_command.h"
#include "fullshard/launch/signals.h"
#include "fullshard/launch/supervisor.h"

namespace fullshard::launch {
namespace {

using std::chrono::milliseconds;

// The other launchers need time for their own grace period and for their report.
constexpr auto kWay = std::chrono::seconds(3);

std::string folder() { return std::filesystem::current_path().string(); }

// Connections to all hosts at once; what each said and how it ended.
std::vector<std::string> try_hosts(const HostsOptions& hosts, const Keeper& keeper) {
  const std::string line =
      fmt::format("cd {} && test -x {}", shell_quoted(folder()), shell_quoted(hosts.launcher));
  Children tries;
  for (const Host& host : hosts.hosts) {
    if (is_this_host(host.name)) continue;
    tries.push_back(std::make_unique<ChildProcess>(
        ChildOptions{.name = host.name,
                     .command = remote_command(hosts.ssh, host.name, line),
                     .environment = inherited_environment(),
                     .output = {.shown = false}},
        keeper));
  }
  std::vector<std::string> problems;
  for (const auto& child : tries) {
    while (!child->has_just_ended()) {
      pollfd outputs[2] = {{child->outputs()[0], POLLIN, 0}, {child->outputs()[1], POLLIN, 0}};
      ::poll(outputs, 2, 50);
      for (const size_t stream : {0, 1}) child->pass_output(stream);
    }
    child->pass_rest();
    if (!child->has_failed()) continue;
    const auto& lines = child->output().last_lines();
    problems.push_back(
        fmt::format("launch: host {}: {}", child->name(),
                    !lines.empty() ? fmt::format("{}", fmt::join(lines, "; "))
                    : child->exit_status() == 1
                        ? fmt::format("there is no program '{}'; install it there", hosts.launcher)
                        : fmt::format("{} {}", hosts.ssh, child->how_it_ended())));
  }
  return problems;
}

// The variables of this process that ranks on other hosts should see too.
std::vector<std::string> exported(const std::vector<std::string>& more) {
  static constexpr std::string_view kHeads[] = {
      "FULLSHARD_",  "OMP_",   "MKL_",   "NCCL_", "GLOO_", "CUDA_",
      "TORCH_",      "PYTHON", "MLFLOW", "MV2",   "UCX",   "LD_LIBRARY_PATH=",
      "ACCELERATE_", "FSDP_"};
  std::vector<std::string> chosen;
  for (const std::string& variable : inherited_environment()) {
    const std::string name = variable.substr(0, variable.find('='));
    if (std::find(more.begin(), more.end(), name) != more.end() ||
        std::any_of(std::begin(kHeads), std::end(kHeads),
                    [&](std::string_view head) { return variable.starts_with(head); })) {
      chosen.push_back(variable);
    }
  }
  return chosen;
}

bool is_selection(const std::vector<int>& slots) {
  for (size_t place = 0; place < slots.size(); ++place) {
    if (slots[place] != static_cast<int>(place)) return true;
  }
  return false;
}

// What the launcher of one host is told; the token comes through its standard input, where other
// users of the host cannot see it.
std::vector<std::string> launcher_words(const LaunchOptions& options, const HostsOptions& hosts,
                                        size_t node, int first_rank) {
  const Host& host = hosts.hosts[node];
  const auto seconds = [](milliseconds time) {
    return fmt::format("{}", static_cast<double>(time.count()) / 1000);
  };
  std::vector<std::string> words = {hosts.launcher, "launch", "--controlled"};
  const auto add = [&](const char* flag, const std::string& value) {
    words.push_back(fmt::format("--{}={}", flag, value));
  };
  add("ranks", std::to_string(host.slots.size()));
  add("nnodes", std::to_string(hosts.hosts.size()));
  add("node-rank", std::to_string(node));
  add("first-rank", std::to_string(first_rank));
  add("world-size", std::to_string(*options.world_size));
  add("master-addr", options.master_address);
  add("master-port", std::to_string(options.master_port));
  add("restart-count", std::to_string(options.restart_count));
  add("max-restarts", std::to_string(options.max_restarts));
  add("notice", seconds(options.notice));
  add("grace", seconds(options.grace));
  add("tee", options.tee == Tee::all ? "all" : options.tee == Tee::first ? "0" : "none");
  add("bind", options.binding == Binding::cores ? "cores" : "none");
  if (options.saves_itself) words.push_back("--saves-itself");
  if (options.logs_wait) words.push_back("--logs-wait");
  if (!options.log_dir.empty()) add("log-dir", options.log_dir);
  if (is_selection(host.slots)) add("devices", fmt::format("{}", fmt::join(host.slots, ",")));
  words.push_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

Children start_hosts(const LaunchOptions& options, const HostsOptions& hosts,
                     const Keeper& keeper) {
  std::vector<std::string> prelude = {"env"};
  for (const std::string& variable : exported(hosts.exports)) prelude.push_back(variable);
  Children children;
  int first_rank = 0;
  for (size_t node = 0; node < hosts.hosts.size(); ++node) {
    const Host& host = hosts.hosts[node];
    std::vector<std::string> words = launcher_words(options, hosts, node, first_rank);
    if (!is_this_host(host.name)) {
      const std::string line = fmt::format("cd {} && exec {} {}", shell_quoted(folder()),
                                           shell_line(prelude), shell_line(words));
      words = remote_command(hosts.ssh, host.name, line);
    }
    children.push_back(
        std::make_unique<ChildProcess>(ChildOptions{.name = "host " + host.name,
                                                    .number = static_cast<int>(node),
                                                    .command = words,
                                                    .environment = inherited_environment(),
                                                    .output = {},
                                                    .direct = true,
                                                    .is_remote = true},
                                       keeper));
    children.back()->tell(options.secret);
    first_rank += static_cast<int>(host.slots.size());
  }
  return children;
}

// Several jobs may meet on the same first host, and this host cannot look there for a free port.
int random_port() {
  std::random_device random;
  return std::uniform_int_distribution(20000, 29999)(random);
}

}  // namespace

LaunchResult launch_hosts(const LaunchOptions& options, const HostsOptions& hosts) {
  if (options.command.empty()) {
    fail_as(ErrorKind::usage, "launch: no program given; write it after '--'");
  }
  const Signals signals;
  const Keeper keeper;
  const auto problems = try_hosts(hosts, keeper);
  if (!problems.empty()) fail_as(ErrorKind::usage, "{}", fmt::join(problems, "\nerror: "));

  LaunchOptions start = options;
  start.world_size = 0;
  for (const Host& host : hosts.hosts) *start.world_size += static_cast<int>(host.slots.size());
  if (start.master_address.empty()) start.master_address = address_of(hosts.hosts.front().name);
  for (int restart = 0;; ++restart) {
    start.restart_count = restart;
    start.secret = make_job_secret();
    if (options.master_port == 0) start.master_port = random_port();
    LaunchOptions watching = options;
    watching.grace += kWay;
    watching.explains_itself = false;  // the hosts' launchers write the messages, not the program
    Supervisor supervisor(start_hosts(start, hosts, keeper), signals, watching);
    LaunchResult result = supervisor.run();
    result.failed_rank.reset();  // the launcher on that host has named it
    if (!is_worth_a_restart(options, result, restart)) return result;
    base::say(fmt::format("launch: restart {} of {}\n", restart + 1, options.max_restarts));
  }
}

}  // namespace fullshard::launch
