// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/base/bytes.h"

namespace fullshard {

void Ledger::Account::change(int64_t bytes) {
  held += bytes;
  peak = std::max(peak, held);
}

const Ledger::Account& Ledger::account(tiers::Purpose purpose, tiers::Tier tier) const {
  return accounts_[static_cast<size_t>(tier)][static_cast<size_t>(purpose)];
}

void Ledger::hold(tiers::Purpose purpose, tiers::Tier tier, int64_t bytes) {
  std::lock_guard lock(mutex_);
  accounts_[static_cast<size_t>(tier)][static_cast<size_t>(purpose)].change(bytes);
  totals_[static_cast<size_t>(tier)].change(bytes);
}

void Ledger::drop(tiers::Purpose purpose, tiers::Tier tier, int64_t bytes) {
  hold(purpose, tier, -bytes);
}

int64_t Ledger::held(tiers::Purpose purpose, tiers::Tier tier) const {
  std::lock_guard lock(mutex_);
  return account(purpose, tier).held;
}

int64_t Ledger::peak(tiers::Purpose purpose, tiers::Tier tier) const {
  std::lock_guard lock(mutex_);
  return account(purpose, tier).peak;
}

int64_t Ledger::held_total(tiers::Tier tier) const {
  std::lock_guard lock(mutex_);
  return totals_[static_cast<size_t>(tier)].held;
}

int64_t Ledger::peak_total(tiers::Tier tier) const {
  std::lock_guard lock(mutex_);
  return totals_[static_cast<size_t>(tier)].peak;
}

void Ledger::reset_peaks() {
  std::lock_guard lock(mutex_);
  for (auto& tier : accounts_) {
    for (auto& account : tier) account.peak = account.held;
  }
  for (auto& total : totals_) total.peak = total.held;
}

std::string Ledger::table() const {
  std::lock_guard lock(mutex_);
  std::string text;
  for (int tier = 0; tier < tiers::kNumTiers; ++tier) {
    for (int purpose = 0; purpose < tiers::kNumPurposes; ++purpose) {
      const auto& account = accounts_[tier][purpose];
      if (account.peak == 0) continue;
      text += fmt::format("{:<7} {:<11} {:>10} held {:>10} peak\n",
                          tiers::name_of(static_cast<tiers::Tier>(tier)),
                          tiers::name_of(static_cast<tiers::Purpose>(purpose)),
                          format_bytes(account.held), format_bytes(account.peak));
    }
  }
  return text;
}

}  // namespace fullshard
