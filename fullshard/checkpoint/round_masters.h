// SPDX-License-Identifier: Apache-2.0
// Masters as a program finds them that keeps no fp32 copies.
#pragma once

#include "fullshard/engine/sharded_model.h"

namespace fullshard::checkpoint {

// Collective. Every master becomes the nearest value of the dtype that is computed in, as if only
// 16-bit weights had been loaded (DeepSpeed's load_from_fp32_weights: false). Nothing changes where
// the model computes in the masters' own dtype.
void round_masters(ShardedModel& model);

}  // namespace fullshard::checkpoint
