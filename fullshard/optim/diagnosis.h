// SPDX-License-Identifier: Apache-2.0
// Why training broke down, in words: what was seen, what it usually comes from, what to do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace fullshard::optim {

// What is known about a step whose loss or gradients are not finite.
struct BreakdownEvidence {
  int64_t step = 0;                  // counted from 1, as metrics are
  std::optional<double> bad_loss{};  // not finite, of `bad_loss_rank`
  int bad_loss_rank = 0;
  std::string first_place{};  // "the forward of unit 'blocks.1' on rank 2"; empty: unknown
  std::string bad_weight{};   // the first parameter that is not finite; empty: all are
  bool has_updated = true;    // a step before this one changed the weights
  at::ScalarType compute_dtype = at::kFloat;
  double lr = 0;
  bool is_scale_at_minimum = false;
  int skipped_in_a_row = 0;  // with this one, where no loss scale can be lowered; 0: it can
  double loss_scale = 1;
  int initial_scale_power = 0;
};

// One sentence of what happened, one of where, then the likely causes with their remedies.
std::string diagnose(const BreakdownEvidence& evidence);

}  // namespace fullshard::optim
