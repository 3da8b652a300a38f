#include "fullshard/cli/run_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "fullshard/base/error.h"
#include "fullshard/launch/devices.h"

namespace fullshard {
namespace {

std::string core_program() {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string core = (here / "fullshard-core").string();
  if (::access(core.c_str(), X_OK) != 0) {
    fail("{}: is not there or cannot be run; it belongs beside fullshard", core);
  }
  return core;
}

// Somebody else has started this process as one rank of several.
bool is_a_rank() {
  const auto has = [](const char* name) { return std::getenv(name) != nullptr; };
  const char* tasks = std::getenv("SLURM_NTASKS");
  return (has("RANK") && has("WORLD_SIZE")) || has("OMPI_COMM_WORLD_RANK") || has("PMI_RANK") ||
         (has("SLURM_PROCID") && has("SLURM_STEP_ID") && tasks != nullptr &&
          std::strcmp(tasks, "1") != 0);
}

[[noreturn]] void become(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(words[0], words.data());
  fail("{}: cannot be started: {}", command[0], std::strerror(errno));
}

// Rank 0 draws its progress line straight onto the terminal: its own output goes through the
// launcher, which keeps a log of it.
void lend_terminal(LaunchFlags& launch) {
  if (::isatty(STDERR_FILENO) == 0) return;
  const int copy = ::dup(STDERR_FILENO);
  if (copy >= 0) launch.add_variable(fmt::format("FULLSHARD_TERMINAL_FD={}", copy));
}

std::vector<std::string> core_command(const std::vector<std::string>& words) {
  std::vector<std::string> command = {core_program()};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

}  // namespace

void become_core(const std::vector<std::string>& words) { become(core_command(words)); }

int run_on_ranks(RunArguments& arguments, const std::vector<std::string>& words) {
  const std::vector<std::string> command = core_command(words);
  LaunchFlags& launch = arguments.launch();
  if (is_a_rank() && !launch.names_ranks()) become(command);

  const Plan plan = arguments.plan(std::nullopt, {}, false);
  launch.take(plan.launch);
  const bool on_gpus = arguments.device() == "cuda";
  launch.set_default_ranks(on_gpus ? std::max(num_visible_gpus(), 1) : 1);
  arguments.plan(launch.world_size(), {}, true);  // batch sizes and factors must fit the ranks
  for (const Problem& warning : plan.warnings()) {
    fmt::print(stderr, "warning: {}\n", warning.text());
  }
  const RunOptions& options = arguments.options();
  if (arguments.kind() == RunKind::train) launch.keep_logs_in(options.output + "/logs");
  launch.show_only_first();
  launch.trust_messages();
  lend_terminal(launch);
  return launch.start(command);
}

}  // namespace fullshard
