// SPDX-License-Identifier: Apache-2.0
#include "fullshard/planning/estimate_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/bytes.h"

namespace fullshard::planning {
namespace {

nlohmann::ordered_json tier_json(const TierEstimate& tier) {
  nlohmann::ordered_json purposes = nlohmann::ordered_json::object();
  for (int purpose = 0; purpose < tiers::kNumPurposes; ++purpose) {
    purposes[std::string(tiers::name_of(static_cast<tiers::Purpose>(purpose)))] =
        tier.by_purpose[static_cast<size_t>(purpose)];
  }
  return {{"rest_bytes", tier.rest_bytes},
          {"peak_bytes", tier.peak_bytes},
          {"peak_at", tier.peak_at},
          {"by_purpose", purposes}};
}

}  // namespace

std::string estimate_text(const Estimate& estimate, const FitVerdict& verdict) {
  std::string text = fmt::format("{} parameters on {} rank{}; a rank holds\n",
                                 format_count(estimate.num_parameters), estimate.ranks,
                                 estimate.ranks == 1 ? "" : "s");
  for (int index = 0; index < tiers::kNumTiers; ++index) {
    const auto& tier = estimate.tiers[static_cast<size_t>(index)];
    if (tier.peak_bytes == 0) continue;
    text += fmt::format("{:<7} {:>10} between steps, {:>10} at most, in the {}\n",
                        tiers::name_of(static_cast<tiers::Tier>(index)),
                        format_bytes(tier.rest_bytes), format_bytes(tier.peak_bytes), tier.peak_at);
    for (int purpose = 0; purpose < tiers::kNumPurposes; ++purpose) {
      const int64_t bytes = tier.by_purpose[static_cast<size_t>(purpose)];
      if (bytes == 0) continue;
      text += fmt::format("        {:>10} {}\n", format_bytes(bytes),
                          tiers::name_of(static_cast<tiers::Purpose>(purpose)));
    }
  }
  text += verdict.why + "\n";
  for (const auto& change : verdict.changes) text += "  try " + change + "\n";
  return text;
}

std::string estimate_json(const Estimate& estimate, const FitVerdict& verdict) {
  nlohmann::ordered_json all = {{"fits", verdict.fits},
                                {"ranks", estimate.ranks},
                                {"why", verdict.why},
                                {"device", tier_json(estimate.on(tiers::Tier::device))},
                                {"host", tier_json(estimate.on(tiers::Tier::host))},
                                {"disk", tier_json(estimate.on(tiers::Tier::disk))},
                                {"parameters", estimate.num_parameters},
                                {"changes", verdict.changes}};
  return all.dump();
}

}  // namespace fullshard::planning
