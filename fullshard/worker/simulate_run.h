// SPDX-License-Identifier: Apache-2.0
// `fullshard simulate`: one process, no ranks.
#pragma once

#include <memory>

#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/simulation/simulate.h"
#include "fullshard/train/model_source.h"

namespace fullshard::worker {

int run_simulate(cli::RunArguments& arguments);  // returns the exit status

// A model for one simulation, which uses it up, and the workload that the flags say.
struct SimulatedModel {
  std::shared_ptr<LanguageModel> model;
  Plan plan;
  SimulateOptions options;
};
SimulatedModel simulated_model(const cli::RunArguments& arguments, const ModelSource& source,
                               int ranks);

// Like find_model, but a missing model is an Error of kind usage.
ModelSource find_simulated_model(const std::string& name);

}  // namespace fullshard::worker
