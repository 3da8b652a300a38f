// SPDX-License-Identifier: Apache-2.0
// What becomes of the result of a product.
#pragma once

namespace fullshard::ops {

// `graph_only`: nobody reads the values, as at the end of a unit that backward computes again
// (nn/replayed_unit.h); they are left unwritten, and what backward needs is kept all the same.
enum class ResultUse { values, graph_only };

}  // namespace fullshard::ops
