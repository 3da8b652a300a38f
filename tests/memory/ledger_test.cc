#include "fullshard/memory/ledger.h"

#include <gtest/gtest.h>

namespace fullshard {
namespace {

TEST(Ledger, KeepsHeldAndPeakPerPurposeAndInTotal) {
  Ledger ledger;
  ledger.hold(Purpose::parameters, Tier::device, 100);
  ledger.hold(Purpose::gradients, Tier::device, 50);
  ledger.drop(Purpose::parameters, Tier::device, 100);
  ledger.hold(Purpose::gradients, Tier::host, 7);
  EXPECT_EQ(ledger.held(Purpose::parameters), 0);
  EXPECT_EQ(ledger.peak(Purpose::parameters), 100);
  EXPECT_EQ(ledger.held_total(), 50);
  EXPECT_EQ(ledger.peak_total(), 150);
  EXPECT_EQ(ledger.held(Purpose::gradients, Tier::host), 7);
  ledger.reset_peaks();
  EXPECT_EQ(ledger.peak_total(), 50);
  EXPECT_EQ(ledger.peak(Purpose::parameters), 0);
}

TEST(Ledger, PrintsALinePerPurposeThatEverHeldBytes) {
  Ledger ledger;
  ledger.hold(Purpose::master, Tier::device, 2048);
  EXPECT_EQ(ledger.table(), "device  master           2 KiB held      2 KiB peak\n");
}

}  // namespace
}  // namespace fullshard
