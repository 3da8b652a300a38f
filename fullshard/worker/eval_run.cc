// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/eval_run.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "fullshard/base/standard_streams.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/generation/whole_weights.h"
#include "fullshard/train/evaluate.h"
#include "fullshard/train/run/run_data.h"
#include "fullshard/train/run_adapter.h"
#include "fullshard/worker/plan_inputs.h"
#include "fullshard/worker/rank_model.h"
#include "fullshard/worker/weight_residence.h"

namespace fullshard::worker {
namespace {

// The memory of the largest forward of a rank.
planning::PassBytes evaluated_bytes(const RankModel& run, const planning::PassTerms& terms,
                                    int64_t micro_batch, const RunOptions& options) {
  return {.activations = planning::evaluation_bytes(
              train::make_planned_model(run.source, options), terms, micro_batch,
              planned_sequence_length(options, *run.model), options.target_length)};
}

int print_scores(const EvaluateResult& result, bool is_json) {
  const auto& [accuracy, f1] = *result.classes;
  if (is_json) {
    fmt::print("{}\n", nlohmann::json{{"loss", result.loss},
                                      {"accuracy", accuracy},
                                      {"f1", f1},
                                      {"labels", result.labels},
                                      {"examples", result.examples}}
                           .dump());
  } else {
    fmt::print("loss {:.6f}  accuracy {:.4f}  F1 {:.4f}  ({} examples)\n", result.loss, accuracy,
               f1, result.examples);
  }
  return 0;
}

}  // namespace

int run_eval(const cli::RunArguments& arguments) {
  const RunOptions& options = arguments.options();
  const RankModel run(options, /*is_trained=*/false);
  const World world = meet_ranks(arguments);
  const Plan plan = arguments.plan(world.size(), run.auto_inputs(), world.rank() != 0);
  std::optional<train::RunData> data;
  engine::throw_alike(world.communicator(), engine::error_of([&] {
                        data = train::open_run_data(options, run.source.folder, *run.model);
                      }),
                      "data");
  const int64_t micro_batch =
      plan.batch.micro.value.value_or(AutoInputs{}.per_device_train_batch_size);
  WeightNeeds needs;
  ShardedModel sharded = run.shard_frozen(world, plan, options, [&](ShardOptions& shard_options) {
    const auto asked = asked_evaluation_dtype(options);
    if (asked && asked != shard_options.param_dtype) {  // from weights in fp32
      shard_options.param_dtype = shard_options.master_dtype = std::nullopt;
    }
    const planning::PassTerms terms{world.device(), shard_options.param_dtype};
    needs = weight_needs(*run.model, world, shard_options, plan_passes(world, [&] {
      return evaluated_bytes(run, terms, micro_batch, options);
    }));
    needs.command = "eval";
    place_weights(needs, world, run.source.has_weights, shard_options);
  });
  const WeightResidence residence = weight_residence(sharded, needs, std::nullopt);
  if (world.rank() == 0) {
    run.warn_of_weights();
    for (const std::string& warning : data->warnings()) {
      base::say(fmt::format("warning: {}\n", warning));
    }
    for (const std::string& warning : residence.warnings) {
      base::say(fmt::format("warning: {}\n", warning));
    }
  }
  std::optional<std::vector<std::string>> resident;
  if (!residence.units.is_whole()) resident = residence.units.resident;
  generation::WholeWeights weights(sharded, resident);
  const auto result = evaluate(*run.model, *data->train, world,
                               {.micro_batch = micro_batch,
                                .max_batches = options.eval_batches,
                                .seed = options.seed,
                                .dtype = evaluation_dtype(options, plan)});
  weights.close();
  if (world.rank() != 0) return 0;
  if (!std::isfinite(result.loss)) {
    base::say(fmt::format(
        "warning: the loss is {}: the weights are not finite, or too large for their dtype\n",
        result.loss));
  }
  if (result.classes) return print_scores(result, options.json);
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"loss", result.loss},
                                      {"perplexity", result.perplexity()},
                                      {"labels", result.labels},
                                      {"examples", result.examples}}
                           .dump());
  } else {
    fmt::print("loss {:.6f}  perplexity {:.4f}  ({} labels of {} examples)\n", result.loss,
               result.perplexity(), result.labels, result.examples);
  }
  return 0;
}

}  // namespace fullshard::worker
