// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/tune_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "fullshard/base/error.h"
#include "fullshard/base/launcher_environment.h"
#include "fullshard/cli/commands/run_command.h"
#include "fullshard/launch/child_process.h"
#include "fullshard/launch/devices.h"
#include "fullshard/launch/keeper.h"
#include "fullshard/launch/signals.h"

namespace fullshard::cli {
namespace {

constexpr int kLookEveryMilliseconds = 1000;

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return variables;
}

// Signals are passed to tune while it runs; it keeps its results.
int run_apart(const std::vector<std::string>& command) {
  std::fflush(nullptr);
  const launch::Signals signals;
  const launch::Keeper keeper;
  launch::ChildProcess child(
      {.name = "tune", .command = command, .environment = own_environment(), .direct = true},
      keeper);
  while (!child.has_just_ended()) {
    pollfd watched = {signals.descriptor(), POLLIN, 0};
    ::poll(&watched, 1, kLookEveryMilliseconds);
    while (const auto number = signals.next()) {
      if (*number != SIGCHLD) child.signal(*number);
    }
  }
  return child.exit_status();
}

std::vector<std::string> tune_words(const RunArguments& arguments, const std::string& folder) {
  std::vector<std::string> words = {this_program(), "tune"};
  const auto own = arguments.words([](std::string_view flag) {
    return flag == "auto" || flag == "output" || flag == "json" || flag == "local-rank" ||
           flag == "report-to";
  });
  words.insert(words.end(), own.begin(), own.end());
  words.push_back("--output=" + folder);
  // Standard output belongs to the run.
  if (arguments.options().json && !arguments.options().quiet) words.emplace_back("--quiet");
  return words;
}

std::vector<std::string> train_words(RunArguments& arguments, const std::string& folder) {
  constexpr std::array kTunes = {"auto",        "budget",          "from",  "device-memory",
                                 "host-memory", "max-micro-batch", "disk",  "measure-steps",
                                 "ranks",       "num-processes",   "device"};
  std::vector<std::string> words = {this_program(), "train"};
  const auto own = arguments.words([&](std::string_view flag) {
    return is_chosen_by_tune(flag) || std::find(kTunes.begin(), kTunes.end(), flag) != kTunes.end();
  });
  words.insert(words.end(), own.begin(), own.end());
  words.push_back("--config=" + folder + "/tuned.json");
  words.push_back("--device=" + arguments.device());
  if (const auto wrap = wrap_flag(arguments.plan(std::nullopt, {}, true).wrap)) {
    words.push_back(fmt::format("{}={}", wrap->flag, wrap->value));
  }
  words.push_back(fmt::format("--ranks={}", arguments.launch().world_size()));
  return words;
}

std::string_view command_of_trials(RunKind kind) {
  if (kind == RunKind::step) return "bench step";
  return kind == RunKind::tune ? "tune" : "train --auto";
}

}  // namespace

std::optional<FlagValue> wrap_flag(const WrapPlanSettings& wrap) {
  if (wrap.policy.origin.from != Origin::From::file) return std::nullopt;
  if (*wrap.policy == "NO_WRAP") return FlagValue{"--wrap", "none"};
  if (*wrap.policy == "SIZE_BASED_WRAP") {
    return FlagValue{"--wrap", fmt::format("{}", *wrap.min_num_params)};
  }
  if (wrap.classes->empty()) return std::nullopt;
  return FlagValue{"--wrap", fmt::format("{}", fmt::join(*wrap.classes, ","))};
}

void check_ranks_of_trials(RunArguments& arguments) {
  LaunchFlags& launch = arguments.launch();
  const bool is_rank = base::LauncherEnvironment::of_process().is_rank;
  if (is_rank && !launch.names_ranks()) {
    fail_as(
        ErrorKind::usage,
        "{}: starts its ranks itself, but this is a rank already; start it once, with --ranks N",
        command_of_trials(arguments.kind()));
  }
  const Plan plan = arguments.plan(std::nullopt, {}, true);
  launch.take(plan.launch);
  const bool on_gpus = arguments.device() == "cuda";
  launch.set_default_ranks(on_gpus ? std::max(launch::num_visible_gpus(), 1) : 1);
  if (launch.names_hosts()) {
    fail_as(ErrorKind::usage, "{}: works on the ranks of one host; leave out the other hosts",
            command_of_trials(arguments.kind()));
  }
  arguments.plan(launch.world_size(), {}, true);  // sizes and factors must fit the ranks
}

void train_tuned(RunArguments& arguments) {
  check_ranks_of_trials(arguments);
  const std::string folder = arguments.options().output + "/tune";
  const int status = run_apart(tune_words(arguments, folder));
  if (status != 0) std::exit(status);
  become(train_words(arguments, folder));
}

}  // namespace fullshard::cli
