// SPDX-License-Identifier: Apache-2.0
// Trains the tiny transformer, sharded or not, and gives what came out, for comparison.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/plan/options.h"
#include "fullshard/engine/sharded_model.h"
#include "tests/training/tiny_transformer.h"

namespace fullshard::testing {

struct TrainingOptions {
  TinyConfig model = {};
  int steps = 5;
  int micro_batches = 1;
  double clip = 0.5;  // 0: none
  uint64_t seed = 7;
  bool recompute = false;
  bool no_sync = false;  // reduce once, with the last micro-batch
};

struct Outcome {
  std::map<std::string, at::Tensor> parameters;
  std::vector<double> losses;  // of rank 0
  std::vector<double> norms;
};

// The same values on every call.
TinyTransformer make_model(const TrainingOptions& options);
// What a rank reads in a step; different for every rank, step and micro-batch.
at::Tensor make_batch(const TrainingOptions& options, int step, int micro_batch, int rank);

// Without the engine: the mean over all ranks' batches, AdamW on whole parameters.
Outcome train_unsharded(const TrainingOptions& options, int world_size);
// One rank's part; collective.
Outcome train_sharded(const World& world, const ShardOptions& shard_options,
                      const TrainingOptions& options);
// Ranks as threads; gives rank 0's outcome.
Outcome train_on_threads(const ThreadRanks& ranks, const ShardOptions& shard_options,
                         const TrainingOptions& options);

}  // namespace fullshard::testing
