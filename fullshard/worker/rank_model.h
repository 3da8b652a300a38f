// SPDX-License-Identifier: Apache-2.0
// What every command that runs a model does first: find the other ranks, build the model, shard it
// and give it its weights.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/lora/adapter_config.h"
#include "fullshard/train/model_source.h"

namespace fullshard::worker {

World meet_ranks(const cli::RunArguments& arguments);

struct RankModel {
  ModelSource source;
  std::shared_ptr<LanguageModel> model;
  std::vector<std::string> drawn = {};  // parameters of the head that the file does not give
  std::optional<AdapterConfig> adapter = {};

  // For training: a head that the file lacks gets random weights.
  RankModel(const RunOptions& options, bool is_trained);
  // Collective. Shards the model by the plan and, unless a checkpoint will do that, loads its
  // weights or makes new ones. A model with adapters gets those of its base in any case.
  ShardedModel shard(const World& world, const Plan& plan, const RunOptions& options,
                     bool fills = true) const;
  // Collective. The same for a model that is never trained: nothing of it has gradients, and
  // weights are kept in the dtype that is computed in. `place` may change where weights rest.
  ShardedModel shard_frozen(const World& world, const Plan& plan, const RunOptions& options,
                            const std::function<void(ShardOptions&)>& place = {}) const;
  // Collective. The weights of the source or new ones, and those of the adapter.
  void fill(ShardedModel& sharded, const RunOptions& options) const;
  // Warns on standard error, on one rank, if there are no weights, or an unused head.
  void warn_of_weights() const;
  AutoInputs auto_inputs() const;

 private:
  ShardedModel shard_by(const World& world, const ShardOptions& shard_options,
                        const RunOptions& options, bool fills) const;
};

// The value of --eval-precision; absent: it is not given.
std::optional<at::ScalarType> asked_evaluation_dtype(const RunOptions& options);
// The dtype that products of an evaluation are cast to; absent: they compute in the model's own.
std::optional<at::ScalarType> evaluation_dtype(const RunOptions& options, const Plan& plan);

}  // namespace fullshard::worker
