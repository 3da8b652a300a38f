// SPDX-License-Identifier: Apache-2.0
// In what two checkpoints differ, whatever their kinds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/stored/any_checkpoint.h"

namespace fullshard::checkpoint {

struct TensorDifference {
  std::string part;    // "weights", or the state's name
  std::string tensor;  // empty: the part as a whole is in one of them only
  std::string what;    // "only in the first", "only in the second", "shape [2] and [3]", "values"
  int64_t num_different = 0;  // elements that differ by more than the tolerance
  double largest = 0;         // absolute difference
};

struct CheckpointDiff {
  int64_t num_compared = 0;  // tensors with values in both
  std::vector<TensorDifference> differences;
};

// Values are compared as doubles; NaN equals NaN. A dtype that differs is no difference, nor is
// a second name of a tied tensor that one of them lacks. States are compared when both have some. A
// few MiB are held.
CheckpointDiff diff_checkpoints(const stored::AnyCheckpoint& first,
                                const stored::AnyCheckpoint& second, double tolerance);

}  // namespace fullshard::checkpoint
