// SPDX-License-Identifier: Apache-2.0
// Loops that a plan of memory need not walk to the end.
#pragma once

#include <cstdint>

namespace fullshard::tensor {

// Of a loop whose turns all hold the same: whether this one may be left out, because nothing is
// computed (pretence.h) and nothing counts what would be (operator_watch.h). The first, the second
// and the last turn never are.
bool may_leave_out(int64_t turn, int64_t num_turns);

}  // namespace fullshard::tensor
