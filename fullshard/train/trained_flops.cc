// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/trained_flops.h"

#include <torch/nn/module.h>

#include "fullshard/ops/products/linear.h"

namespace fullshard::train {

// A multiplication and an addition for each weight: in forward, for the rows' gradient, and for the
// weight's.
double trained_flops_per_token(const LanguageModel& model, int64_t sequence_length) {
  constexpr double kProduct = 2;
  double flops = model.flops_per_token(sequence_length);
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* linear = dynamic_cast<const LinearImpl*>(module.get());
    if (linear == nullptr) continue;
    const LinearTerms terms = linear->terms();
    if (!terms.weight.requires_grad()) {
      flops -= kProduct * static_cast<double>(terms.weight.numel());
    }
    if (!linear->is_adapted()) continue;
    flops +=
        3 * kProduct * static_cast<double>(terms.low_rank.a.numel() + terms.low_rank.b.numel());
  }
  return flops;
}

}  // namespace fullshard::train
