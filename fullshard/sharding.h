// SPDX-License-Identifier: Apache-2.0
// Ranks, units and sharded models: World, Unit, shard(), ShardedModel.
#pragma once

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/communicator.h"
#include "fullshard/comm/timeouts.h"
#include "fullshard/comm/world/mesh.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/comm/world_options.h"
#include "fullshard/engine/gather_scope.h"
#include "fullshard/engine/plan/counters.h"
#include "fullshard/engine/plan/options.h"
#include "fullshard/engine/plan/schedule.h"
#include "fullshard/engine/plan/sharding.h"
#include "fullshard/engine/plan/wrap.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/memory/ledger.h"
#include "fullshard/nn/activation_offload.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/nn/recompute.h"
#include "fullshard/nn/recompute_policy.h"
#include "fullshard/nn/unit.h"
