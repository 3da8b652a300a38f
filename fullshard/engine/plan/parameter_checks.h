// SPDX-License-Identifier: Apache-2.0
// Parameters that cannot lie in a flat buffer, or would lose on the way there what they were.
#pragma once

#include "fullshard/engine/plan/wrap.h"

namespace fullshard::engine {

// Changes nothing. An error of kind usage that names the first parameter of a unit which is sharded
// already, was made in inference mode, is sparse or quantised, has a dtype that cannot be trained,
// or whose memory another parameter or buffer has too. Tied parameters are one tensor under several
// names, and none of these; what is deferred has no memory.
void check_parameters(const WrapPlan& plan);

}  // namespace fullshard::engine
