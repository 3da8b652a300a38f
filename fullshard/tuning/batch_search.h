// SPDX-License-Identifier: Apache-2.0
// The largest of several sizes that fits, in few tries: doubling, then halving the gap.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace fullshard::tuning {

using FitsAt = std::function<bool(int64_t index)>;

// Indices 0 to count - 1 stand for rising sizes; 0 is known to fit. Returns the largest index that
// fits, which is exact where what fits at one size fits at every smaller one.
int64_t largest_fitting(int64_t count, const FitsAt& fits);

// The same between one that fits and one that does not.
int64_t halve_the_gap(int64_t fitting, int64_t failing, const FitsAt& fits);

// Micro-batches that may be tried, up to `most`. With a fixed number of examples of a rank in a
// step (0: any) only those that divide it.
std::vector<int64_t> possible_batches(int64_t most, int64_t examples_per_step);

}  // namespace fullshard::tuning
