// Fullshard, as users include it. What this does not include is internal and may change.
#pragma once

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/mesh.h"
#include "fullshard/comm/world.h"
#include "fullshard/nn/recompute.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/linear.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/optim/sgd.h"
#include "fullshard/optim/torch_optimizer.h"
#include "fullshard/shard/options.h"
#include "fullshard/shard/sharded_model.h"
