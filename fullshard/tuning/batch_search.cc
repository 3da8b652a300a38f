// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/batch_search.h"

#include <algorithm>

namespace fullshard::tuning {

int64_t halve_the_gap(int64_t fitting, int64_t failing, const FitsAt& fits) {
  while (failing - fitting > 1) {
    const int64_t middle = fitting + (failing - fitting) / 2;
    (fits(middle) ? fitting : failing) = middle;
  }
  return fitting;
}

int64_t largest_fitting(int64_t count, const FitsAt& fits) {
  int64_t fitting = 0;
  while (fitting < count - 1) {
    // Sizes, not indices, double: index 0 is a batch of one.
    const int64_t next = std::min(2 * fitting + 1, count - 1);
    if (!fits(next)) return halve_the_gap(fitting, next, fits);
    fitting = next;
  }
  return fitting;
}

std::vector<int64_t> possible_batches(int64_t most, int64_t examples_per_step) {
  std::vector<int64_t> batches;
  for (int64_t batch = 1; batch <= most; ++batch) {
    if (examples_per_step == 0 || examples_per_step % batch == 0) batches.push_back(batch);
  }
  return batches;
}

}  // namespace fullshard::tuning
