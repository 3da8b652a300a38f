// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/diagnosis.h"

#include <fmt/format.h>

#include <cmath>

namespace fullshard::optim {
namespace {

std::string what_happened(const BreakdownEvidence& evidence) {
  if (evidence.bad_loss) {
    // Whether a NaN has a sign depends on the processor.
    const double loss =
        std::isnan(*evidence.bad_loss) ? std::abs(*evidence.bad_loss) : *evidence.bad_loss;
    return fmt::format("step {}: the loss is {} on rank {}", evidence.step, loss,
                       evidence.bad_loss_rank);
  }
  if (evidence.is_scale_at_minimum) {
    return fmt::format(
        "step {}: gradients overflow although the loss scale is at its minimum of {} and cannot be "
        "lowered",
        evidence.step, evidence.loss_scale);
  }
  if (evidence.skipped_in_a_row > 1) {
    return fmt::format(
        "step {}: gradients were not finite for {} steps in a row, and there is no loss scale to "
        "lower",
        evidence.step, evidence.skipped_in_a_row);
  }
  return fmt::format("step {}: gradients are not finite", evidence.step);
}

std::string where(const BreakdownEvidence& evidence) {
  if (evidence.first_place.empty()) return "where the first such value appeared is not known";
  return "the first value that is not finite appeared in " + evidence.first_place;
}

}  // namespace

std::string diagnose(const BreakdownEvidence& evidence) {
  std::string text = fmt::format("{}; {}. ", what_happened(evidence), where(evidence));
  if (!evidence.bad_weight.empty() && !evidence.has_updated) {
    return text + fmt::format(
                      "Parameter '{}' is not finite, and no step has changed it: the weights that "
                      "training begins with hold NaN or infinity. Check what they were loaded from "
                      "(fullshard checkpoint verify names such tensors)",
                      evidence.bad_weight);
  }
  if (!evidence.bad_weight.empty()) {
    text += fmt::format("Parameter '{}' is not finite any more. ", evidence.bad_weight);
  }
  text += "Likely causes:";
  if (evidence.compute_dtype == at::kHalf) {
    text +=
        "\n  - a model trained in bf16 runs in fp16, whose largest value is 65504: use bf16 or "
        "fp32";
    constexpr int kPlentyOfScale = 32;
    if (!evidence.bad_loss && evidence.initial_scale_power < kPlentyOfScale) {
      text +=
          fmt::format("\n  - the scale began too low to recover (initial_scale_power {}): try {}",
                      evidence.initial_scale_power, kPlentyOfScale);
    }
  }
  text += fmt::format(
      "\n  - the learning rate of {:g} is too high: lower it, or warm up for more steps",
      evidence.lr);
  text +=
      "\n  - the data: an empty or fully masked batch, labels out of range, or values that are not "
      "finite in the input";
  return text;
}

}  // namespace fullshard::optim
