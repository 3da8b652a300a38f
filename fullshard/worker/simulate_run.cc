// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/simulate_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/report/trace_events.h"
#include "fullshard/simulation/simulation_text.h"
#include "fullshard/worker/plan_inputs.h"

namespace fullshard::worker {
namespace {

Cluster chosen_cluster(const cli::SimulationOptions& own) {
  Cluster cluster = Cluster::load(own.cluster);
  for (const auto& [key, flag, value] : own.overrides) {
    if (!value.empty()) cluster.override_value(key, value, flag);
  }
  return cluster;
}

// "none": the roofline, even if the preset has been timed. A rate that is given applies to all.
simulation::KernelTable chosen_kernels(const cli::SimulationOptions& own) {
  if (own.kernels == "none") return {};
  if (!own.kernels.empty()) return simulation::KernelTable::load(own.kernels);
  const bool has_own_rates =
      std::any_of(own.overrides.begin(), own.overrides.end(), [](const auto& each) {
        return each.key.starts_with("gpu.") && each.key != "gpu.memory" && !each.value.empty();
      });
  return has_own_rates ? simulation::KernelTable()
                       : simulation::KernelTable::of_preset(own.cluster);
}

struct SimulationResults {
  std::vector<Simulation> simulations{};
  Cluster cluster{};
  simulation::KernelTable kernels{};
};

void write_results(const SimulationResults& results, const cli::SimulationOptions& own,
                   const std::string& title) {
  const auto page = [&] {
    return simulation::simulation_page(results.simulations, results.cluster, results.kernels,
                                       title);
  };
  if (!own.html.empty()) report::write_whole_file(own.html, page());
  if (!own.output.empty()) {
    report::make_folders(own.output);
    report::write_whole_file(own.output + "/simulation.html", page());
    report::write_whole_file(
        own.output + "/simulation.json",
        simulation::simulation_json(results.simulations, results.cluster) + "\n");
  }
  if (!own.trace.empty()) {
    report::write_whole_file(
        own.trace, report::trace_events(results.simulations.back().timeline.spans, "compute"));
  }
}

}  // namespace

ModelSource find_simulated_model(const std::string& name) {
  try {
    return find_model(name);
  } catch (const Error& error) {
    throw Error(error.what(), ErrorKind::usage);  // nothing else was read or started
  }
}

SimulatedModel simulated_model(const cli::RunArguments& arguments, const ModelSource& source,
                               int ranks) {
  const RunOptions& options = arguments.options();
  SimulatedModel result;
  result.model = make_deferred_model(source, /*needs_head=*/true);
  result.plan = arguments.plan(ranks, {.hidden_size = source.hidden_size()}, true);
  result.options.ranks = ranks;
  result.options.sequence_length = planned_sequence_length(options, *result.model);
  result.options.target_length = options.target_length;
  result.options.reduce_once = options.reduce_once;
  result.options.label_smoothing = options.label_smoothing;
  return result;
}

int run_simulate(cli::RunArguments& arguments) {
  const RunOptions& options = arguments.options();
  const auto& own = arguments.simulation();
  SimulationResults results{.cluster = chosen_cluster(own)};
  results.kernels = chosen_kernels(own);
  const ModelSource source = find_simulated_model(options.model);
  for (const int ranks : own.ranks) {
    auto run = simulated_model(arguments, source, ranks);
    run.options.cluster = results.cluster;
    run.options.kernels = results.kernels;
    results.simulations.push_back(simulate(run.model, run.plan, run.options));
  }
  write_results(results, own, fmt::format("{} on {}", options.model, results.cluster.name));
  fmt::print("{}", options.json
                       ? simulation::simulation_json(results.simulations, results.cluster) + "\n"
                       : simulation::simulation_text(results.simulations, results.cluster,
                                                     results.kernels));
  base::flush_standard_output();
  return 0;
}

}  // namespace fullshard::worker
