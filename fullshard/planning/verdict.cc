// SPDX-License-Identifier: Apache-2.0
#include "fullshard/planning/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/memory_info.h"
#include "fullshard/engine/plan/sharding.h"
#include "fullshard/launch/cgroup.h"
#include "fullshard/train/apply_plan.h"

namespace fullshard::planning {
namespace {

using tiers::Purpose;
using tiers::Tier;

constexpr const char* kToDisk = "offload to a disk: --offload all:FOLDER with --zero-stage 3";

std::string_view largest_purpose(const TierEstimate& tier) {
  const auto largest = std::max_element(tier.by_purpose.begin(), tier.by_purpose.end());
  return tiers::name_of(static_cast<Purpose>(largest - tier.by_purpose.begin()));
}

int64_t held_for(const TierEstimate& tier, Purpose purpose) {
  return tier.by_purpose[static_cast<size_t>(purpose)];
}

// States and gradients that more ranks would share.
int64_t shared_bytes(const TierEstimate& tier) {
  return held_for(tier, Purpose::parameters) + held_for(tier, Purpose::gradients) +
         held_for(tier, Purpose::master) + held_for(tier, Purpose::optimizer);
}

// In order of cost, as in docs/planning.md.
std::vector<std::string> changes_on_device(const Estimate& estimate, const Plan& plan,
                                           int64_t limit) {
  const auto& device = estimate.on(Tier::device);
  const int64_t missing = device.peak_bytes - limit;
  const ShardOptions options = shard_options_of(plan);
  const auto sharding = decide_sharding(options.sharding, estimate.ranks, estimate.ranks);
  std::vector<std::string> changes;
  const int64_t micro_batch = plan.batch_sizes(estimate.ranks).micro_batch;
  const int64_t activations = held_for(device, Purpose::activations);
  if (micro_batch > 1 && activations - activations / micro_batch >= missing / 2) {
    changes.push_back(fmt::format("a smaller --micro-batch ({} now, {} of activations)",
                                  micro_batch, format_bytes(activations)));
  }
  const bool shards_all =
      sharding.sharding.parameters == Placement::sharded && sharding.num_shards == estimate.ranks;
  if (!shards_all && estimate.ranks > 1) {
    changes.emplace_back("a higher stage: --zero-stage 3 over all ranks");
  }
  if (shared_bytes(device) > missing / 4) {
    changes.push_back(fmt::format("more ranks ({} now)", estimate.ranks));
  }
  if (!*plan.recompute.enabled && activations > missing / 4) changes.emplace_back("--recompute");
  if (plan.precision.fp16.value == false && plan.precision.bf16.value == false) {
    changes.emplace_back("--precision bf16");
  }
  const auto& offload = options.offload;
  if (estimate.device.is_cuda()) {
    if (offload.optimizer.tier == Tier::device) changes.emplace_back("--offload optimizer");
    if (offload.parameters.tier == Tier::device) changes.emplace_back("--offload all");
  }
  if (offload.optimizer.tier != Tier::disk || offload.parameters.tier != Tier::disk) {
    changes.emplace_back(kToDisk);
  }
  return changes;
}

std::vector<std::string> changes_on_host(const Estimate& estimate) {
  std::vector<std::string> changes{"more ranks, on more hosts"};
  if (estimate.on(Tier::disk).peak_bytes == 0) {
    changes.emplace_back(kToDisk);
  }
  changes.emplace_back("less offload, where the device has room (--offload-ratio)");
  return changes;
}

}  // namespace

MemoryLimits limits_here(at::Device device, int ranks_per_host) {
  MemoryLimits limits;
  limits.ranks_per_host = std::max(ranks_per_host, 1);
  int64_t memory = base::memory_info().total_bytes;
  if (const auto allowed = launch::cgroup_limits().memory_bytes) {
    memory = memory > 0 ? std::min(memory, *allowed) : *allowed;
  }
  if (memory <= 0) return limits;
  if (device.is_cpu()) {
    limits.device_bytes = memory / limits.ranks_per_host;
  } else {
    limits.host_bytes = memory;
  }
  return limits;
}

FitVerdict judge(const Estimate& estimate, const Plan& plan, const MemoryLimits& limits) {
  const auto& device = estimate.on(Tier::device);
  const auto& host = estimate.on(Tier::host);
  const int64_t on_host = host.peak_bytes * limits.ranks_per_host;
  if (limits.device_bytes && device.peak_bytes > *limits.device_bytes) {
    return {false,
            fmt::format("does not fit: {} on the device in the {}, only {} are available; most "
                        "of it {}",
                        format_bytes(device.peak_bytes), device.peak_at,
                        format_bytes(*limits.device_bytes), largest_purpose(device)),
            changes_on_device(estimate, plan, *limits.device_bytes)};
  }
  if (limits.host_bytes && on_host > *limits.host_bytes) {
    return {false,
            fmt::format(
                "does not fit: {} in host memory for {} rank{}, only {} are available; most "
                "of it {}",
                format_bytes(on_host), limits.ranks_per_host, limits.ranks_per_host == 1 ? "" : "s",
                format_bytes(*limits.host_bytes), largest_purpose(host)),
            changes_on_host(estimate)};
  }
  if (!limits.device_bytes) {
    return {true,
            fmt::format("{} on the device in the {}; the memory of the device is unknown "
                        "(--device-memory)",
                        format_bytes(device.peak_bytes), device.peak_at),
            {}};
  }
  return {true,
          fmt::format("fits: {} of {} on the device in the {}, {} are left",
                      format_bytes(device.peak_bytes), format_bytes(*limits.device_bytes),
                      device.peak_at, format_bytes(*limits.device_bytes - device.peak_bytes)),
          {}};
}

void check_fits(const Estimate& estimate, const Plan& plan, const MemoryLimits& limits) {
  const auto verdict = judge(estimate, plan, limits);
  if (verdict.fits) return;
  fail_as(ErrorKind::no_fit, "memory: {}; nothing was started. In order of cost: {}", verdict.why,
          fmt::join(verdict.changes, ", "));
}

}  // namespace fullshard::planning
