// SPDX-License-Identifier: Apache-2.0
// What shard() was told, as this model and these ranks can have it.
#pragma once

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/plan/options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::engine {

// Collective, before anything else is. Ranks that were given different options are an error of kind
// usage, the same on all, which names each of them. sync_module_states is left aside where it has
// nothing to take: one rank, or a deferred model on rank 0. What is measured here rather than said,
// the host's share of the step, is filled in.
ShardOptions settle_options(ShardOptions options, const torch::nn::Module& module,
                            const World& world);

}  // namespace fullshard::engine
