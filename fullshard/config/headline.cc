// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/headline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fullshard/config/sharding_flags.h"

namespace fullshard::config {
namespace {

std::string sharding_of(const ShardingPlan& sharding) {
  std::string text = sharding.stage.value ? fmt::format("ZeRO stage {}", *sharding.stage.value)
                                          : strategy_in_effect(sharding).value;
  if (sharding.factor.value) text += fmt::format(" in groups of {}", *sharding.factor.value);
  return text;
}

std::string precision_of(const PrecisionPlan& precision) {
  if (precision.fp8.value) return "fp8";
  return precision.bf16.value ? "bf16" : precision.fp16.value ? "fp16" : "fp32";
}

std::string batch_of(const BatchPlan& batch, int64_t ranks) {
  const int64_t micro = batch.micro.value.value_or(AutoInputs{}.per_device_train_batch_size);
  const int64_t accumulation = batch.accumulation.value.value_or(1);
  const int64_t global = batch.global.value.value_or(micro * accumulation * ranks);
  return fmt::format("{} examples{} × {} rank{} = {} per step", micro,
                     accumulation > 1 ? fmt::format(" × {} micro-batches", accumulation) : "",
                     ranks, ranks == 1 ? "" : "s", global);
}

}  // namespace

std::string headline(const Plan& plan, int64_t ranks) {
  std::vector<std::string> parts = {
      sharding_of(plan.sharding), precision_of(plan.precision),
      fmt::format("{} with lr {} by {}", plan.optimizer.type.value,
                  format_number(plan.optimizer.lr.value), plan.scheduler.type.value),
      batch_of(plan.batch, ranks)};
  if (plan.clipping.value > 0) {
    parts.push_back(fmt::format("gradients clipped at {}", format_number(plan.clipping.value)));
  }
  if (plan.recompute.enabled.value) parts.push_back("activations recomputed");
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace fullshard::config
