// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/memory_forecast.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/memory/available_memory.h"
#include "fullshard/planning/estimate.h"
#include "fullshard/planning/verdict.h"
#include "fullshard/train/run_adapter.h"
#include "fullshard/worker/plan_inputs.h"

namespace fullshard::worker {
namespace {

PlannedTier planned_tier(const TierEstimate& estimate, tiers::Tier tier) {
  PlannedTier planned{.tier = std::string(tiers::name_of(tier)),
                      .rest_bytes = estimate.rest_bytes,
                      .peak_bytes = estimate.peak_bytes,
                      .peak_at = estimate.peak_at};
  for (int purpose = 0; purpose < tiers::kNumPurposes; ++purpose) {
    const int64_t bytes = estimate.by_purpose[static_cast<size_t>(purpose)];
    if (bytes == 0) continue;
    planned.by_purpose.emplace_back(tiers::name_of(static_cast<tiers::Purpose>(purpose)), bytes);
  }
  return planned;
}

std::vector<PlannedTier> planned_tiers(const Estimate& estimate) {
  std::vector<PlannedTier> tiers;
  for (int index = 0; index < tiers::kNumTiers; ++index) {
    const auto tier = static_cast<tiers::Tier>(index);
    if (estimate.on(tier).peak_bytes > 0) tiers.push_back(planned_tier(estimate.on(tier), tier));
  }
  return tiers;
}

// The free memory of an accelerator; ranks of the CPU share that of the host.
planning::MemoryLimits limits_of_ranks(const World& world) {
  auto limits = planning::limits_here(world.device(), world.local_size());
  if (!world.device().is_cpu()) limits.device_bytes = memory::available_bytes(world.device());
  return limits;
}

}  // namespace

MemoryForecast forecast_training(const RunOptions& options, const ModelSource& source,
                                 const Plan& plan, const World& world) {
  const bool on_cpu = world.device().is_cpu();
  plan.check(world.size(), on_cpu ? "cpu" : "cuda");
  try {
    const auto model = train::make_planned_model(source, options);
    const Estimate result =
        estimate(model, plan,
                 {.ranks = world.size(),
                  .ranks_per_host = std::max(world.ranks_per_host(), 0),
                  .device = on_cpu ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0),
                  .sequence_length = planned_sequence_length(options, *model),
                  .target_length = options.target_length,
                  .reduce_once = options.reduce_once,
                  .label_smoothing = options.label_smoothing});
    planning::check_fits(result, plan, limits_of_ranks(world));
    return {.tiers = planned_tiers(result)};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::no_fit) throw;
    return {.warning = fmt::format("memory: not planned: {}", error.what())};
  } catch (const std::exception& error) {
    return {.warning = fmt::format("memory: not planned: {}", error.what())};
  }
}

}  // namespace fullshard::worker
