// SPDX-License-Identifier: Apache-2.0
#include "fullshard/planning/memory_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "fullshard/engine/plan/unit_name.h"

namespace fullshard::planning {

void MemoryMeter::change(at::Device device, tensor::AllocationKind kind, int64_t bytes) {
  const auto tier = device.type() == device_.type() ? tiers::Tier::device : tiers::Tier::host;
  const std::lock_guard lock(mutex_);
  // By now the owner of the allocation that made the peak has entered it in the ledger.
  explain(static_cast<int>(tier));
  auto& own = tiers_[static_cast<size_t>(tier)];
  own.held += bytes;
  if (kind == tensor::AllocationKind::tensor) own.tensors += bytes;
  if (own.held <= own.peak) return;
  own.peak = own.held;
  own.tensors_at_peak = own.tensors;
  own.peak_at = moment();
  own.is_new_peak = true;
}

// Memory that has no purpose is free in a pool.
void MemoryMeter::explain(int tier) {
  auto& own = tiers_[static_cast<size_t>(tier)];
  if (!own.is_new_peak || ledger_ == nullptr) return;
  own.is_new_peak = false;
  auto& purposes = own.by_purpose;
  for (int purpose = 0; purpose < tiers::kNumPurposes; ++purpose) {
    purposes[static_cast<size_t>(purpose)] =
        ledger_->held(static_cast<tiers::Purpose>(purpose), static_cast<tiers::Tier>(tier));
  }
  purposes[static_cast<size_t>(tiers::Purpose::activations)] += own.tensors_at_peak;
  const int64_t known = std::accumulate(purposes.begin(), purposes.end(), int64_t{0});
  purposes[static_cast<size_t>(tiers::Purpose::workspace)] +=
      std::max<int64_t>(own.peak - known, 0);
}

std::string MemoryMeter::moment() const {
  const auto& pass = engine::present_pass();
  using Kind = engine::PresentPass::Kind;
  if (pass.kind == Kind::none) return std::string(act_);
  return fmt::format("{} of {}", pass.kind == Kind::forward ? "forward" : "backward",
                     engine::describe_unit(pass.unit));
}

void MemoryMeter::explain_by(const Ledger& ledger) {
  const std::lock_guard lock(mutex_);
  ledger_ = &ledger;
}

void MemoryMeter::begin(std::string_view act) {
  const std::lock_guard lock(mutex_);
  act_ = act;
}

void MemoryMeter::note_rest() {
  const std::lock_guard lock(mutex_);
  for (auto& tier : tiers_) tier.rest = tier.held;
}

// Files are not allocations. They are created with the weights, and keep their size.
TierEstimate MemoryMeter::on_disk() const {
  TierEstimate disk{.rest_bytes = ledger_->held_total(tiers::Tier::disk),
                    .peak_bytes = ledger_->peak_total(tiers::Tier::disk),
                    .peak_at = "optimizer's step"};
  for (int purpose = 0; purpose < tiers::kNumPurposes; ++purpose) {
    disk.by_purpose[static_cast<size_t>(purpose)] =
        ledger_->peak(static_cast<tiers::Purpose>(purpose), tiers::Tier::disk);
  }
  return disk;
}

Estimate MemoryMeter::estimate() {
  const std::lock_guard lock(mutex_);
  Estimate result;
  for (int tier = 0; tier < tiers::kNumTiers; ++tier) {
    explain(tier);
    const auto& own = tiers_[static_cast<size_t>(tier)];
    result.tiers[static_cast<size_t>(tier)] = {own.rest, own.peak, own.peak_at, own.by_purpose};
  }
  if (ledger_ != nullptr) result.tiers[static_cast<size_t>(tiers::Tier::disk)] = on_disk();
  ledger_ = nullptr;
  return result;
}

}  // namespace fullshard::planning
