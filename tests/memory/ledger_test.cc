// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/ledger.h"

#include <gtest/gtest.h>

namespace fullshard::memory {
namespace {

TEST(Ledger, KeepsHeldAndPeakPerPurposeAndInTotal) {
  Ledger ledger;
  ledger.hold(tiers::Purpose::parameters, tiers::Tier::device, 100);
  ledger.hold(tiers::Purpose::gradients, tiers::Tier::device, 50);
  ledger.drop(tiers::Purpose::parameters, tiers::Tier::device, 100);
  ledger.hold(tiers::Purpose::gradients, tiers::Tier::host, 7);
  EXPECT_EQ(ledger.held(tiers::Purpose::parameters), 0);
  EXPECT_EQ(ledger.peak(tiers::Purpose::parameters), 100);
  EXPECT_EQ(ledger.held_total(), 50);
  EXPECT_EQ(ledger.peak_total(), 150);
  EXPECT_EQ(ledger.held(tiers::Purpose::gradients, tiers::Tier::host), 7);
  ledger.reset_peaks();
  EXPECT_EQ(ledger.peak_total(), 50);
  EXPECT_EQ(ledger.peak(tiers::Purpose::parameters), 0);
}

TEST(Ledger, PrintsALinePerPurposeThatEverHeldBytes) {
  Ledger ledger;
  ledger.hold(tiers::Purpose::master, tiers::Tier::device, 2048);
  EXPECT_EQ(ledger.table(), "device  master           2 KiB held      2 KiB peak\n");
}

TEST(Ledger, CountsTheDiskToTheByteBesideTheOthers) {
  Ledger ledger;
  ledger.hold(tiers::Purpose::optimizer, tiers::Tier::disk, 4097);
  ledger.hold(tiers::Purpose::parameters, tiers::Tier::disk, 3);
  ledger.hold(tiers::Purpose::optimizer, tiers::Tier::host, 10);
  ledger.drop(tiers::Purpose::optimizer, tiers::Tier::disk, 97);
  EXPECT_EQ(ledger.held(tiers::Purpose::optimizer, tiers::Tier::disk), 4000);
  EXPECT_EQ(ledger.held_total(tiers::Tier::disk), 4003);
  EXPECT_EQ(ledger.peak_total(tiers::Tier::disk), 4100);
  EXPECT_EQ(ledger.held_total(tiers::Tier::host), 10);
  EXPECT_EQ(ledger.held_total(), 0);
  EXPECT_EQ(ledger.table(),
            "host    optimizer         10 B held       10 B peak\n"
            "disk    parameters         3 B held        3 B peak\n"
            "disk    optimizer     3.91 KiB held      4 KiB peak\n");
}

}  // namespace
}  // namespace fullshard::memory
