// SPDX-License-Identifier: Apache-2.0
// Where the groups of a model rest: its specs as tiers/residence takes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fullshard/engine/plan/group_spec.h"
#include "fullshard/engine/plan/options.h"
#include "fullshard/tiers/residence.h"

namespace fullshard::engine {

// Of one rank of so many shards. Frozen groups have parameters only.
tiers::GroupSize size_of(const GroupSpec& spec, int num_shards);

// Writes GroupSpec::residence of every group, in the order of the module tree, and returns them all
// with what the user is to be told. Throws where the options do not go with the stage.
tiers::Residence place_groups(const ShardOptions& options, int num_shards, at::Device device,
                              std::vector<std::vector<GroupSpec>>& units);

}  // namespace fullshard::engine
