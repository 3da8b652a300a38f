// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/launch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/launcher_environment.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/launch/cores.h"
#include "fullshard/launch/job_secret.h"
#include "fullshard/launch/keeper.h"
#include "fullshard/launch/late_lines.h"
#include "fullshard/launch/meeting_watch.h"
#include "fullshard/launch/node_line.h"
#include "fullshard/launch/port.h"
#include "fullshard/launch/rank_environment.h"
#include "fullshard/launch/signals.h"
#include "fullshard/launch/supervisor.h"

namespace fullshard::launch {
namespace {

bool is_piped() {
  struct stat facts = {};
  return ::fstat(STDOUT_FILENO, &facts) == 0 && S_ISFIFO(facts.st_mode);
}

constexpr int kDefaultPort = 29500;

template <class... Parts>
void require(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) fail_as(ErrorKind::usage, format, std::forward<Parts>(parts)...);
}

void validate(const LaunchOptions& options) {
  require(options.ranks >= 1, "launch: {} ranks asked for, expected at least 1", options.ranks);
  require(!options.command.empty(), "launch: no program given; write it after '--'");
  require(options.nodes >= 1, "launch: {} nodes asked for, expected at least 1", options.nodes);
  require(options.node_rank >= 0 && options.node_rank < options.nodes,
          "launch: node rank is {}, expected 0 to {}", options.node_rank, options.nodes - 1);
  require(options.master_port >= 0 && options.master_port < 65536,
          "launch: master port is {}, expected 1 to 65535", options.master_port);
  require(options.nodes == 1 || !options.master_address.empty(),
          "launch: {} nodes, but no address where they meet; give --master-addr HOST, the host of "
          "node rank 0",
          options.nodes);
}

int common_port(const LaunchOptions& options) {
  return options.master_port != 0 ? options.master_port : kDefaultPort;
}

// On one host a port that is taken can be replaced; several hosts know only this one.
HeldPort port_for(const LaunchOptions& options) {
  if (options.nodes == 1) {
    const int wanted = options.master_port;
    auto chosen = wanted != 0 ? HeldPort::hold(wanted) : std::nullopt;
    if (chosen) return std::move(*chosen);
    auto port = HeldPort::free_one();
    if (wanted != 0) {
      base::say(fmt::format("warning: launch: port {} is in use on this host; taking {}\n", wanted,
                            port.number()));
    }
    return port;
  }
  const int port = common_port(options);
  if (options.node_rank != 0) return HeldPort(port);
  auto held = HeldPort::hold(port);
  require(held.has_value(),
          "launch: port {} is in use on this host, where the ranks would meet; choose another with "
          "--master-port on all nodes",
          port);
  return std::move(*held);
}

std::string secret_for(const LaunchOptions& options) {
  if (!options.secret.empty()) return options.secret;
  if (options.nodes == 1) return make_job_secret();
  // For several hosts the launchers get one through the environment, or there is none.
  return base::LauncherEnvironment::of_process().job_secret();
}

Meeting arrange_meeting(const LaunchOptions& options, int port, int restart) {
  return {.address = options.master_address.empty() ? "127.0.0.1" : options.master_address,
          .port = port,
          .secret = secret_for(options),
          .restart = restart};
}

std::string log_of(const LaunchOptions& options, int rank) {
  return options.log_dir.empty() ? "" : fmt::format("{}/rank-{}.log", options.log_dir, rank);
}

// Where a new log waits, next to an older one, until the run is accepted.
std::string waiting_log(const std::string& log) { return log + ".new"; }

// An older run's logs are kept next to the new ones; a restart adds to the log of its own run.
void prepare_logs(const LaunchOptions& options) {
  if (options.log_dir.empty()) return;
  std::error_code problem;
  std::filesystem::create_directories(options.log_dir, problem);
  require(!problem, "launch: cannot make the folder '{}': {}", options.log_dir, problem.message());
  if (options.restart_count > 0) return;
  for (int local = 0; local < options.ranks; ++local) {
    const std::string log = log_of(options, first_rank_of(options) + local);
    if (!options.logs_wait) {
      std::filesystem::rename(log, log + ".old", problem);  // usually there is none
    } else if (std::filesystem::exists(log, problem)) {
      std::ofstream{waiting_log(log)};
    } else {
      std::filesystem::remove(waiting_log(log), problem);  // left by a start that was refused
    }
  }
}

// Our own programs warn about late ranks. The rank that is shown can name all but itself, so the
// others show what they say about it. Node 0's do; if it has no others, those of the next node do.
bool shows_late_lines(const LaunchOptions& options) {
  const bool is_ours = options.explains_itself || options.saves_itself;
  return is_ours && options.tee == Tee::first && options.node_rank <= (options.ranks == 1 ? 1 : 0);
}

ChildOutputOptions output_of(const LaunchOptions& options, int rank, LateLines& late_lines) {
  ChildOutputOptions output{
      .shown = options.tee == Tee::all || (options.tee == Tee::first && rank == 0),
      .prefix = rank == 0 ? "" : fmt::format("[{}] ", rank),
      .log = log_of(options, rank),
      .late_lines = rank != 0 && shows_late_lines(options) ? &late_lines : nullptr};
  std::error_code problem;
  if (options.logs_wait && std::filesystem::exists(waiting_log(output.log), problem)) {
    output.log_name = std::exchange(output.log, waiting_log(output.log));
  }
  return output;
}

Children start_ranks(const LaunchOptions& options, Meeting meeting, const MeetingWatch& watch,
                     LateLines& late_lines, const Keeper& keeper) {
  meeting.notice = watch.variable();
  const auto environments = rank_environments(options, meeting);
  const std::vector<int> cores = allowed_cores();
  Children ranks;
  for (int local = 0; local < options.ranks; ++local) {
    const int rank = first_rank_of(options) + local;
    ChildOptions child{.name = fmt::format("rank {}", rank),
                       .number = rank,
                       .command = options.command,
                       .environment = environments[static_cast<size_t>(local)],
                       .kept_open = options.kept_open};
    child.kept_open.push_back(watch.ranks_descriptor());
    if (options.binding == Binding::cores) child.cores = cores_of(cores, local, options.ranks);
    child.output = output_of(options, rank, late_lines);
    // A pipe whose reader has gone would end the rank by SIGPIPE, which the launcher ignores.
    child.direct = rank == 0 && child.output.shown && options.log_dir.empty() && !is_piped();
    // In a group of its own a rank would be stopped when it read from the terminal.
    child.has_input = rank == 0 && options.control < 0 && ::isatty(STDIN_FILENO) == 0;
    ranks.push_back(std::make_unique<ChildProcess>(child, keeper));
  }
  return ranks;
}

// Over ssh the launcher that started this one reports what has happened on other hosts.
std::unique_ptr<NodeLine> line_to_nodes(const LaunchOptions& options) {
  if (options.nodes == 1 || options.control >= 0) return nullptr;
  return std::make_unique<NodeLine>(NodeLineOptions{.address = options.master_address,
                                                    .port = node_line_port(common_port(options)),
                                                    .secret = secret_for(options),
                                                    .nodes = options.nodes,
                                                    .is_first = options.node_rank == 0});
}

// A node that is still starting would never hear why the others have ended.
void await_nodes(NodeLine& nodes, const Signals& signals, std::chrono::milliseconds longest) {
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!nodes.have_all_come() && std::chrono::steady_clock::now() < end) {
    nodes.wait();
    const auto signal = signals.next();
    if (signal && *signal != SIGCHLD) return;
  }
}

}  // namespace

bool is_worth_a_restart(const LaunchOptions& options, const LaunchResult& result, int restarts) {
  if (result.status == 0 || result.interrupted || restarts >= options.max_restarts) return false;
  // Our own programs end with these before they start anything, or because of their input, and
  // would do so again.
  const bool was_refused = result.status == static_cast<int>(ErrorKind::usage) ||
                           result.status == static_cast<int>(ErrorKind::no_fit) ||
                           result.status == static_cast<int>(ErrorKind::input);
  return !(options.explains_itself && was_refused);
}

LaunchResult launch(const LaunchOptions& options) {
  validate(options);
  prepare_logs(options);
  if (options.nodes > 1 && secret_for(options).empty()) {
    base::say(fmt::format(
        "warning: launch: no job token, so anyone who reaches {} can join the ranks; "
        "set FULLSHARD_JOB_SECRET, or FULLSHARD_JOB_SECRET_FILE, to the same on all nodes\n",
        options.master_address));
  }
  const Signals signals;  // before the ranks: their ends are signals too
  const Keeper keeper;
  const auto nodes = line_to_nodes(options);
  for (int restart = options.restart_count;; ++restart) {
    MeetingWatch meeting;
    LateLines late_lines(/*shown_rank=*/0);
    const HeldPort port = port_for(options);
    Supervisor supervisor(start_ranks(options, arrange_meeting(options, port.number(), restart),
                                      meeting, late_lines, keeper),
                          signals, options);
    supervisor.watch_meeting(meeting);
    if (nodes) supervisor.watch_nodes(*nodes, restart);
    const LaunchResult result = supervisor.run();
    if (options.control >= 0 || !is_worth_a_restart(options, result, restart)) {
      if (nodes && !result.interrupted) await_nodes(*nodes, signals, options.notice);
      return result;
    }
    base::say(fmt::format("launch: restart {} of {}\n", restart + 1, options.max_restarts));
  }
}

}  // namespace fullshard::launch
