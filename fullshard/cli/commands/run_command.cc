// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/run_command.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "fullshard/base/error.h"
#include "fullshard/base/launcher_environment.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/cli/commands/run_claim.h"
#include "fullshard/launch/devices.h"

namespace fullshard::cli {
namespace {

std::string core_program() {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string core = (here / "fullshard-core").string();
  if (::access(core.c_str(), X_OK) != 0) {
    fail("{}: does not exist or is not executable; it belongs next to fullshard", core);
  }
  return core;
}

// Rank 0 draws its progress line directly on the terminal: its other output goes through the
// launcher, which logs it.
void lend_terminal(LaunchFlags& launch) {
  if (::isatty(STDERR_FILENO) == 0) return;
  const int copy = ::dup(STDERR_FILENO);
  if (copy >= 0)
    launch.add_variable(fmt::format("{}={}", base::LauncherEnvironment::kTerminal, copy));
}

// Every rank of this host reads its own prompts, so standard input is copied to a file that each
// can read from the start.
void share_standard_input(const RunArguments& arguments, LaunchFlags& launch) {
  const GenerationRunOptions& own = arguments.options().generation;
  if (own.prompt || !own.prompts.empty()) return;
  if (launch.is_over_ssh()) {
    fail_as(ErrorKind::usage,
            "generate: standard input is not available on other hosts; give --prompts FILE, which "
            "all of them can read");
  }
  const int copy = ::memfd_create("fullshard-prompts", 0);
  if (copy < 0) fail("standard input: cannot be kept for the ranks: {}", std::strerror(errno));
  std::array<char, 1 << 16> bytes{};
  for (ssize_t size; (size = ::read(STDIN_FILENO, bytes.data(), bytes.size())) != 0;) {
    const bool is_kept = size > 0 && ::write(copy, bytes.data(), static_cast<size_t>(size)) == size;
    if (!is_kept) fail("standard input: cannot be read: {}", std::strerror(errno));
  }
  launch.keep_open(copy);
  launch.add_variable(fmt::format("{}={}", base::LauncherEnvironment::kPrompts, copy));
}

// A rank of ours that was ended by a signal counts as failed; the message names the signal.
// `launch` instead passes on the exit status of its program.
int status_of_run(const launch::LaunchResult& result) {
  constexpr int kFirstOfSignals = 128;
  const bool was_killed =
      result.status > kFirstOfSignals && result.status != static_cast<int>(ErrorKind::interrupted);
  return was_killed ? static_cast<int>(ErrorKind::failed) : result.status;
}

// Whether the warning is about training only: settings of steps and updates have no meaning for a
// command that only computes.
bool is_of_training(const Problem& warning) {
  constexpr std::array kTraining = {"optimizer",
                                    "scheduler",
                                    "train_",
                                    "gradient_",
                                    "zero_optimization.offload_optimizer",
                                    "zero_optimization.cpu_"};
  return std::any_of(kTraining.begin(), kTraining.end(), [&](std::string_view beginning) {
    return warning.key.starts_with(beginning);
  });
}

std::vector<std::string> core_command(const std::vector<std::string>& words) {
  std::vector<std::string> command = {core_program()};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

}  // namespace

void become(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(words[0], words.data());
  fail("{}: cannot be started: {}", command[0], std::strerror(errno));
}

void become_core(const std::vector<std::string>& words) { become(core_command(words)); }

int run_on_ranks(RunArguments& arguments, const std::vector<std::string>& words) {
  // A closed output pipe must not end a run; ranks handle SIGPIPE themselves.
  if (arguments.kind() == RunKind::train) std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> command = core_command(words);
  LaunchFlags& launch = arguments.launch();
  const bool is_rank = base::LauncherEnvironment::of_process().is_rank;
  if (is_rank && !launch.names_ranks()) become(command);

  const Plan plan = arguments.plan(std::nullopt, {}, false);
  launch.take(plan.launch);
  const bool on_gpus = arguments.device() == "cuda";
  launch.set_default_ranks(on_gpus ? std::max(launch::num_visible_gpus(), 1) : 1);
  if (arguments.local_rank() && launch.world_size() > 1) {
    fail_as(
        ErrorKind::usage,
        "--local-rank: is set by a launcher for one rank, but here {} are started; leave it out",
        launch.world_size());
  }
  arguments.plan(launch.world_size(), {}, true);  // batch sizes and factors must fit the ranks
  for (const Problem& warning : plan.warnings()) {
    if (arguments.options().only_computes && is_of_training(warning)) continue;
    base::say(fmt::format("warning: {}\n", warning.text()));
  }
  launch.show_only_first();
  launch.trust_messages();
  if (arguments.kind() == RunKind::generate) {
    // A single rank needs no supervisor: it reads and writes the terminal itself, at once.
    if (launch.world_size() == 1 && !launch.is_over_ssh()) become(command);
    share_standard_input(arguments, launch);
  }
  lend_terminal(launch);
  if (arguments.kind() != RunKind::train) return status_of_run(launch.start(command));

  const RunOptions& options = arguments.options();
  const RunClaim claim(options, launch);
  launch.keep_logs_in(options.output + "/logs");
  launch.let_it_save();
  const launch::LaunchResult result = launch.start(command);
  claim.conclude(result);
  return status_of_run(result);
}

int run_on_ranks(CommBenchArguments& arguments, const std::vector<std::string>& words) {
  const std::vector<std::string> command = core_command(words);
  LaunchFlags& launch = arguments.launch();
  if (base::LauncherEnvironment::of_process().is_rank && !launch.names_ranks()) become(command);
  const bool on_gpus = arguments.device() == "cuda";
  launch.set_default_ranks(on_gpus ? std::max(launch::num_visible_gpus(), 2) : 2);
  launch.show_only_first();
  launch.trust_messages();
  return status_of_run(launch.start(command));
}

}  // namespace fullshard::cli
