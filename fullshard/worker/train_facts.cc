// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/train_facts.h"

#include <fmt/format.h>

#include <utility>

#include "fullshard/engine/storage/agreement.h"
#include "fullshard/train/run/run_agreement.h"
#include "fullshard/train/run/run_sample.h"

namespace fullshard::worker {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

template <class T>
void add(Facts& facts, const char* name, const T& value) {
  facts.emplace_back(name, fmt::format("{}", value));
}

// What a rank does between steps, together with the others.
void add_saving(Facts& facts, const CheckpointPlan& checkpoints, const RunOptions& options,
                const RunLength& length) {
  const auto steps_of = [&](const StepInterval& interval) {
    return interval.steps_of(length.steps, length.steps_per_epoch);
  };
  add(facts, "--save-every", steps_of(options.save_every));
  add(facts, "--node-local", checkpoints.node_local.value);
  add(facts, "--async-save", options.async_save);
  add(facts, "--keep", options.keep);
  add(facts, "--keep-best", options.keep_best);
  add(facts, "--restore-best", options.restore_best);
  add(facts, "--save-model", options.save_model);
  add(facts, "--log-every", options.log_every);
  add(facts, "--eval-every", steps_of(options.eval_every));
  add(facts, "--eval-batches", options.eval_batches);
  add(facts, "--eval-micro-batch", options.eval_micro_batch);
  add(facts, "--eval-precision", options.eval_precision);
  add(facts, "--early-stopping-patience", options.early_stopping_patience);
  add(facts, "--early-stopping-threshold", options.early_stopping_threshold);
}

// Tells apart data and weights that have the same names and sizes.
void add_samples(Facts& facts, const train::RunData& data, const std::string& weights) {
  add(facts, "--data with the sum", train::sample_of(*data.train));
  if (data.evaluation) {
    add(facts, "data of the evaluation with the sum", train::sample_of(*data.evaluation));
  }
  if (!weights.empty()) add(facts, "--model with the sum", train::sample_of_weights(weights));
}

}  // namespace

void check_ranks_agree(const World& world, const std::vector<config::EffectiveSetting>& settings,
                       const CheckpointPlan& checkpoints, const RunOptions& options,
                       const RunLength& length, const train::RunData& data,
                       const std::string& weights) {
  if (world.size() == 1) return;
  Facts facts;
  for (const auto& setting : settings) facts.emplace_back(setting.flag, setting.value);
  add(facts, "examples:", data.train->size());
  add(facts, "examples of the evaluation:", data.evaluation ? data.evaluation->size() : 0);
  add_saving(facts, checkpoints, options, length);
  engine::throw_alike(world.communicator(),
                      engine::error_of([&] { add_samples(facts, data, weights); }), "data");
  train::check_alike(world.communicator(), facts);
}

}  // namespace fullshard::worker
