// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/launcher_environment.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/cli/commands/bench_command.h"
#include "fullshard/cli/commands/config_command.h"
#include "fullshard/cli/commands/data_command.h"
#include "fullshard/cli/commands/doctor_command.h"
#include "fullshard/cli/commands/fp32_command.h"
#include "fullshard/cli/commands/launch_command.h"
#include "fullshard/cli/commands/report_command.h"
#include "fullshard/cli/commands/run_command.h"
#include "fullshard/cli/commands/tune_command.h"
#include "fullshard/cli/commands/version_text.h"
#include "fullshard/cli/commands/watch_command.h"
#include "fullshard/cli/flags/checkpoint_arguments.h"
#include "fullshard/cli/flags/known_commands.h"
#include "fullshard/cli/flags/parse_problem.h"
#include "fullshard/cli/flags/repeated_flags.h"
#include "fullshard/cli/flags/trainer_flags.h"
#include "fullshard/cli/flags/trainer_words.h"
#include "fullshard/cli/flags/words.h"

namespace fullshard::cli {
namespace {

void describe(CLI::App& app) {
  app.name("fullshard");
  app.require_subcommand(0, 1);
  app.set_help_flag("-h,--help", "show this text");
  app.set_version_flag("--version", "fullshard " FULLSHARD_VERSION,
                       "show the version; with --verbose, what it was built with");
  app.footer("fullshard help COMMAND, or fullshard COMMAND --help, lists the command's options.");
}

// "help COMMAND" is "COMMAND --help".
std::vector<std::string> with_help(std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.push_back("--help");
  return words;
}

TrainerWords in_own_words(const std::vector<std::string>& words) {
  const bool is_known = !words.empty() && takes_trainer_flags(words.front());
  return is_known ? translate_trainer_words(words) : TrainerWords{.words = words};
}

// Prints on one rank only, where every rank was started with the same arguments.
void say_once(std::string_view kind, const std::vector<std::string>& texts) {
  const auto launcher = base::LauncherEnvironment::of_process();
  for (const base::LauncherVariable& rank :
       {launcher.torchrun.rank, launcher.open_mpi.rank, launcher.pmi.rank, launcher.slurm.task}) {
    if (launcher.is_rank && rank && rank.text != "0") return;
  }
  for (const std::string& text : texts) base::say(fmt::format("{}: {}\n", kind, text));
}

// Handled here because the parser would stop at --version.
bool asks_for_build(const std::vector<std::string>& words) {
  const auto has = [&](std::string_view flag) {
    return std::find(words.begin(), words.end(), flag) != words.end();
  };
  return words.size() == 2 && has("--version") && (has("--verbose") || has("-v"));
}

int run_words(const std::vector<std::string>& words, const std::vector<std::string>& after,
              std::span<const FlagAlias> aliases) {
  if (asks_for_build(words)) {
    fmt::print("{}", version_text());
    return 0;
  }
  CLI::App app("Fully sharded training for C++ on libtorch.");
  describe(app);
  LaunchCommand launch(app);
  ConfigCommand config(app);
  DataCommand data(app);
  ReportCommand report(app);
  WatchCommand watch(app);
  DoctorCommand doctor(app);
  BenchCommand bench(app);
  RunArguments train(app, RunKind::train);
  RunArguments eval(app, RunKind::eval);
  RunArguments compare(app, RunKind::compare);
  RunArguments generate(app, RunKind::generate);
  RunArguments estimate(app, RunKind::estimate);
  RunArguments tune(app, RunKind::tune);
  RunArguments simulate(app, RunKind::simulate);
  CheckpointArguments checkpoint(app);
  check_command(app, words, "fullshard");
  let_last_count(app);
  try {
    app.parse(words_for_parser(words));
  } catch (const CLI::Success& asked) {  // --help or --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fail_as(ErrorKind::usage, "{}", parse_problem(app, error, words));
  }
  std::vector<std::string> notes = repeated_flags(app);
  for (std::string& note : notes) note = with_typed_names(std::move(note), aliases);
  say_once("note", notes);
  if (launch.was_chosen()) return launch.run(words, after);
  if (config.was_chosen()) return config.run();
  // Here the file size limit becomes an error message; programs that launch starts keep the
  // default.
  std::signal(SIGXFSZ, SIG_IGN);
  if (data.was_chosen()) return data.run();
  if (report.was_chosen()) return report.run();
  if (watch.was_chosen()) return watch.run();
  if (doctor.was_chosen()) return doctor.run();
  if (bench.was_chosen()) {
    if (bench.comm().was_chosen()) return run_on_ranks(bench.comm(), words);
    if (bench.step().was_chosen()) check_ranks_of_trials(bench.step());
    if (bench.needs_core()) become_core(words);
    return bench.run();
  }
  if (checkpoint.was_chosen()) {
    const auto options = checkpoint.options();  // reports wrong arguments at once
    if (options.action == CheckpointAction::to_fp32) return run_to_fp32(options);
    become_core(words);
  }
  for (const RunArguments* plan : {&estimate, &simulate}) {
    if (!plan->was_chosen()) continue;
    plan->plan(std::nullopt, {}, true);  // reports wrong arguments at once
    become_core(words);
  }
  if (tune.was_chosen()) {
    check_ranks_of_trials(tune);
    become_core(words);
  }
  if (train.was_chosen() && train.tuning().is_auto) train_tuned(train);
  for (RunArguments* command : {&train, &eval, &compare, &generate}) {
    if (command->was_chosen()) return run_on_ranks(*command, words);
  }
  fmt::print("{}", app.help());
  return 0;
}

int run(int count, char** arguments) {
  // What follows "--" belongs to another program: CLI11 must not see it.
  char** const end = arguments + count;
  char** const split = std::find(arguments, end, std::string_view("--"));
  const std::vector<std::string> after(split, end);
  const TrainerWords own =
      in_own_words(with_help(with_command_first({std::min(arguments + 1, split), split})));
  say_once("warning", own.warnings);
  say_once("note", own.notes);
  try {
    return run_words(own.words, after, own.aliases);
  } catch (const Error& error) {
    throw Error(with_typed_names(error.what(), own.aliases), error.kind());
  }
}

}  // namespace
}  // namespace fullshard::cli

int main(int count, char** arguments) {
  fullshard::base::open_missing_streams();
  try {
    const int status = fullshard::cli::run(count, arguments);
    if (status == 0) fullshard::base::flush_standard_output();
    return status;
  } catch (const fullshard::Error& error) {
    fullshard::base::say(fmt::format("error: {}\n", error.what()));
    return error.exit_status();
  } catch (const std::exception& error) {
    fullshard::base::say(fmt::format("error: fullshard: {}\n", error.what()));
    return 1;
  }
}
