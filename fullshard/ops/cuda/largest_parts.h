// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace fullshard::ops {

// A largest magnitude lies in parts, whose maximum it is: blocks write a part each, and whoever
// reads them takes the maximum. So no order of blocks matters, and nothing is cleared before.
inline constexpr int kLargestParts = 512;

}  // namespace fullshard::ops
