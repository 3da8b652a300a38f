// SPDX-License-Identifier: Apache-2.0
// What a linear layer multiplies rows with: a weight alone, or a frozen one with an adapter.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard {

// scale * (dropout(rows) * a^T) * b^T, which LoRA adds to what a frozen weight makes of the rows.
struct LowRank {
  at::Tensor a{};  // [rank, inputs]; undefined: there is no such part
  at::Tensor b{};  // [outputs, rank]
  double scale = 1;
  double dropout = 0;  // probability in this call, 0 outside of training
};

struct LinearTerms {
  at::Tensor weight{};  // [outputs, inputs]
  at::Tensor bias{};    // may be undefined
  LowRank low_rank{};
  // Of a weight in int8: what each row is multiplied with, fp32 [outputs] (ops/int8_rows.h).
  at::Tensor row_scales{};

  // The weight as it is, and nothing beside it.
  bool is_plain() const { return !low_rank.a.defined() && !row_scales.defined(); }
};

}  // namespace fullshard
