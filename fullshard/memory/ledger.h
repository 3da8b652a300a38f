// SPDX-License-Identifier: Apache-2.0
// Who holds how many bytes, and why. Every buffer of the engine is entered here; the totals are
// what reports and tests read.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "fullshard/tiers/tier.h"

namespace fullshard {

// Thread-safe. One per sharded model.
class Ledger {
 public:
  void hold(tiers::Purpose purpose, tiers::Tier tier, int64_t bytes);
  void drop(tiers::Purpose purpose, tiers::Tier tier, int64_t bytes);

  int64_t held(tiers::Purpose purpose, tiers::Tier tier = tiers::Tier::device) const;
  int64_t peak(tiers::Purpose purpose, tiers::Tier tier = tiers::Tier::device) const;
  // Of all purposes together.
  int64_t held_total(tiers::Tier tier = tiers::Tier::device) const;
  int64_t peak_total(tiers::Tier tier = tiers::Tier::device) const;
  void reset_peaks();

  // One line per purpose: name, held, peak.
  std::string table() const;

 private:
  struct Account {
    int64_t held = 0;
    int64_t peak = 0;
    void change(int64_t bytes);
  };
  const Account& account(tiers::Purpose purpose, tiers::Tier tier) const;

  mutable std::mutex mutex_;
  std::array<std::array<Account, tiers::kNumPurposes>, tiers::kNumTiers> accounts_{};
  std::array<Account, tiers::kNumTiers> totals_{};
};

}  // namespace fullshard
