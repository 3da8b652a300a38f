// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/eval_run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fullshard/engine/storage/agreement.h"
#include "fullshard/train/evaluate.h"
#include "fullshard/train/run/run_data.h"
#include "fullshard/worker/rank_model.h"

namespace fullshard::worker {

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
  ShardedModel sharded = run.shard(world, plan, options);
  if (world.rank() == 0) run.warn_of_unused_head();
  const auto result = evaluate(
      *run.model, *data->train, world,
      {.micro_batch = plan.batch.micro.value.value_or(AutoInputs{}.per_device_train_batch_size),
       .max_batches = options.eval_batches,
       .seed = options.seed,
       .dtype = evaluation_dtype(options)});
  if (world.rank() != 0) return 0;
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
