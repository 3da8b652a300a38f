// SPDX-License-Identifier: Apache-2.0
// Everything shard() can be told. Plain data with defaults; checked once, when the model is
// sharded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/engine/plan/schedule.h"
#include "fullshard/engine/plan/sharding.h"
#include "fullshard/engine/plan/traffic.h"
#include "fullshard/engine/plan/wrap.h"
#include "fullshard/nn/product_precision.h"
#include "fullshard/nn/recompute_policy.h"
#include "fullshard/tiers/tier_options.h"

namespace fullshard {

struct ShardOptions {
  ShardingOptions sharding{};
  WrapPolicy wrap = WrapPolicy::marked();
  std::string ignored_modules{};  // regular expression over module paths
  // Where parameters are gathered, warn of units that hold most of the model. Off for a model whose
  // classes the user cannot change.
  bool advises_on_units = true;

  ScheduleOptions schedule{};  // reshard_after_forward comes from `sharding`
  engine::TrafficOptions traffic{};

  // What computation sees; absent: the parameter's own dtype.
  std::optional<at::ScalarType> param_dtype{};
  // How the layers of blocks multiply: all marked modules but the root, embedding and head. fp8 is
  // for parameters computed with in bf16, on a GPU that has it: docs/training.md, "fp8".
  ProductPrecision products = ProductPrecision::operands;
  // What the optimizer updates; absent: the parameter's own dtype. Frozen parameters have none.
  std::optional<at::ScalarType> master_dtype{};
  // fp32 masters of parameters computed with in bf16 are stored as that bf16 value and the sixteen
  // bits it leaves out, which saves two bytes per parameter that stays whole; ties are rounded away
  // from zero then. For fp32 gradients; absent: on GPUs. Optimizers of the CPU make them whole.
  std::optional<bool> master_in_halves{};
  // What gradients are sent in; absent: the compute dtype. Sums are in fp32.
  std::optional<at::ScalarType> reduce_dtype{};
  // What the optimizer receives; absent: fp32 (fp64 for fp64 masters).
  std::optional<at::ScalarType> gradient_dtype{};
  // What floating buffers become; absent: they stay. Those of ignored modules always stay.
  std::optional<at::ScalarType> buffer_dtype{};
  // With param_dtype: units cast the floating tensors that they are called with to it.
  bool cast_forward_inputs = true;
  // Of the floating tensors that the root returns; absent: as they come out of it.
  std::optional<at::ScalarType> output_dtype{};

  // Whose activations are computed again in backward instead of kept.
  RecomputePolicy recompute = RecomputePolicy::none();
  // What autograd saves in forward waits for backward in host memory. On CPU it is there already,
  // and is only counted.
  bool offload_activations = false;
  int64_t offload_activations_min_bytes = 16 * 1024;  // smaller ones stay
  // What rests in host memory or on a disk instead of on the device: docs/offload.md.
  tiers::TierOptions offload{};

  // Look for infinities and NaN in what units return and in its gradients, so that a broken step
  // can say where they appeared.
  bool watch_non_finite = true;

  // Take rank 0's parameters and buffers, unit by unit; the other ranks' models may be deferred.
  // Where rank 0's own is, there is nothing to take: values come after shard(). Off saves the
  // messages where ranks read the same files: each must have the same values, and is told where
  // not.
  bool sync_module_states = true;
  // At every step the ranks take rank 0's buffers, as DDP's broadcast_buffers does before every
  // forward: BatchNorm's statistics are those of rank 0's batches on all of them. Off: each rank
  // keeps its own, and a checkpoint has rank 0's. docs/training.md, "Buffers".
  bool broadcast_buffers = true;
  // Ranks of one host that compute on CPU look at one copy of the gathered parameters.
  bool share_host_copy = true;

  // DeepSpeed's remaining knobs.
  bool contiguous_gradients = true;         // else gradients wait where autograd left them
  bool round_robin_gradients = false;       // neighbouring tensors go to different ranks
  int64_t sub_group_size = 0;               // most elements updated at once; 0: no limit
  int64_t param_persistence_threshold = 0;  // smaller parameters are never released
};

}  // namespace fullshard
