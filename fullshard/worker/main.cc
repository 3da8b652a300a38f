// SPDX-License-Identifier: Apache-2.0
// fullshard-core: the commands that need libtorch, each as one rank. `fullshard` starts it.
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/cli/commands/bench_command.h"
#include "fullshard/cli/flags/checkpoint_arguments.h"
#include "fullshard/cli/flags/repeated_flags.h"
#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/cli/flags/words.h"
#include "fullshard/worker/bench/bus_bench.h"
#include "fullshard/worker/bench/comm_bench.h"
#include "fullshard/worker/bench/kernels_bench.h"
#include "fullshard/worker/bench/optimizer_bench.h"
#include "fullshard/worker/bench/step_bench.h"
#include "fullshard/worker/build_facts.h"
#include "fullshard/worker/checkpoint_run.h"
#include "fullshard/worker/compare_run.h"
#include "fullshard/worker/estimate_run.h"
#include "fullshard/worker/eval_run.h"
#include "fullshard/worker/generate_run.h"
#include "fullshard/worker/simulate_run.h"
#include "fullshard/worker/train_run.h"
#include "fullshard/worker/tune_run.h"

namespace fullshard::worker {
namespace {

int run_bench(cli::BenchCommand& bench) {
  if (bench.comm().was_chosen()) return run_bench_comm(bench.comm());
  if (bench.optimizer().was_chosen()) return run_bench_optimizer(bench.optimizer());
  if (bench.step().was_chosen()) return run_bench_step(bench.step());
  if (bench.kernels().was_chosen()) return run_bench_kernels(bench.kernels());
  return bench.is_bus() ? run_bench_bus(bench) : bench.run();
}

// Standard output is for results; messages of the library have the format of our own.
void log_to_standard_error() {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("fullshard"));
  spdlog::set_pattern("%l: %v");
}

int run(int count, char** arguments) {
  log_to_standard_error();
  const std::vector<std::string> words(arguments + std::min(count, 1), arguments + count);
  CLI::App app("The part of fullshard that links libtorch; started by fullshard itself.");
  app.require_subcommand(1, 1);
  cli::RunArguments train(app, cli::RunKind::train);
  cli::RunArguments eval(app, cli::RunKind::eval);
  cli::RunArguments compare(app, cli::RunKind::compare);
  cli::RunArguments generate(app, cli::RunKind::generate);
  cli::RunArguments estimate(app, cli::RunKind::estimate);
  cli::RunArguments tune(app, cli::RunKind::tune);
  cli::RunArguments simulate(app, cli::RunKind::simulate);
  cli::CheckpointArguments checkpoint(app);
  cli::BenchCommand bench(app);
  const CLI::App* const facts = app.add_subcommand("facts", "what this build can do");
  cli::let_last_count(app);
  try {
    app.parse(cli::words_for_parser(words));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::usage);
  }
  std::vector<std::string> command = {"fullshard"};
  command.insert(command.end(), words.begin(), words.end());
  if (facts->parsed()) return print_build_facts();
  if (train.was_chosen()) return run_train(train, command);
  if (eval.was_chosen()) return run_eval(eval);
  if (generate.was_chosen()) return run_generate(generate);
  if (estimate.was_chosen()) return run_estimate(estimate);
  if (tune.was_chosen()) return run_tune(tune);
  if (simulate.was_chosen()) return run_simulate(simulate);
  if (bench.was_chosen()) return run_bench(bench);
  if (checkpoint.was_chosen()) return run_checkpoint(checkpoint);
  return run_compare(compare);
}

}  // namespace
}  // namespace fullshard::worker

int main(int count, char** arguments) {
  fullshard::base::open_missing_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error message, not the end
  try {
    const int status = fullshard::worker::run(count, arguments);
    if (status == 0) fullshard::base::flush_standard_output();
    return status;
  } catch (const fullshard::Error& error) {
    fullshard::base::say(fmt::format("error: {}\n", error.what()));
    return error.exit_status();
  } catch (const c10::Error& error) {
    fullshard::base::say(fmt::format("error: libtorch: {}\n", error.what_without_backtrace()));
    return 1;
  } catch (const std::exception& error) {
    fullshard::base::say(fmt::format("error: {}\n", error.what()));
    return 1;
  }
}
