// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of contiguous rows of logits on the CPU. `Stored` is float or Brain.
#pragma once

#include <cstdint>

namespace fullshard::ops {

struct LabelTerms {
  int64_t ignore_index = -100;
  float smoothing = 0;
};

// The loss of every row, 0 where the label is the ignore index; labels lie in the vocabulary. When
// the gradient is wanted the logits are overwritten with it: softmax minus the target distribution,
// zeros where the label is ignored.
template <class Stored>
void cross_entropy_rows(Stored* logits, float* losses, const int64_t* labels, int64_t num_rows,
                        int64_t vocabulary, const LabelTerms& terms, bool wants_gradient);

}  // namespace fullshard::ops
