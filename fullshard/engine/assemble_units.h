// SPDX-License-Identifier: Apache-2.0
// Building the units of a model in shard(): a module, its plan and a mesh become units at run time.
// Nothing here runs again afterwards.
#pragma once

#include <memory>

#include "fullshard/engine/passes/unit_runtime.h"
#include "fullshard/engine/plan/group_context.h"
#include "fullshard/engine/plan/options.h"
#include "fullshard/engine/plan/sharding.h"
#include "fullshard/engine/plan/wrap.h"
#include "fullshard/tiers/residence.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::engine {

// Collective. Checks what the ranks were given, gives memory to what stays whole on every rank, and
// brings recomputation and the dtypes of buffers into the module; may add warnings to the plan.
// True when the parameters have values, or will have rank 0's.
bool prepare_module(torch::nn::Module& module, WrapPlan& plan, const Mesh& mesh,
                    const ShardOptions& options);

// Collective. Shards the parameters of all units in place. The contexts outlive the units. Says in
// `residence` where their groups rest.
Units assemble_units(const WrapPlan& plan, const ShardOptions& options, const Sharding& sharding,
                     const GroupContext& groups, const UnitContext& units,
                     tiers::Residence& residence);

// Collective, where ranks share one copy: slot 0 is free for the caller, each group has one of the
// others. Null elsewhere.
std::shared_ptr<SharedCounters> share_counters(const Units& units, const GroupContext& groups);

}  // namespace fullshard::engine
