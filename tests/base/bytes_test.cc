// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/bytes.h"

#include <gtest/gtest.h>

namespace fullshard::base {
namespace {

TEST(Bytes, ReadWithThreeDigitsAndBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(17), "17 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(21286093), "20.3 MiB");
  EXPECT_EQ(format_bytes(-1536), "-1.5 KiB");
}

TEST(Bytes, GoToTheNextUnitInsteadOfFourDigits) {
  EXPECT_EQ(format_bytes(kMiB - 1), "1 MiB");
  EXPECT_EQ(format_bytes(1000 * kKiB), "1000 KiB");
  EXPECT_EQ(format_count(999999), "1 M");
}

TEST(Bytes, AreParsedWithDecimalAndBinaryUnitsInAnyCase) {
  EXPECT_EQ(parse_bytes("77"), 77);
  EXPECT_EQ(parse_bytes("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_bytes("20.5mib"), 20 * kMiB + kMiB / 2);
  for (const auto* wrong :
       {"", "GB", "5 GBit", "0", "-1", "0.1B", "1e19", "nan", "inf GB", "5 GB"}) {
    EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
  }
}

TEST(Bytes, CountsUseDecimalUnits) {
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(12345), "12.3 K");
  EXPECT_EQ(format_count(1'100'000'000), "1.1 B");
  EXPECT_EQ(format_count(-7), "-7");
}

TEST(Bytes, RoundUpReachesTheNextMultiple) {
  EXPECT_EQ(round_up(0, 8), 0);
  EXPECT_EQ(round_up(1, 8), 8);
  EXPECT_EQ(round_up(8, 8), 8);
}

}  // namespace
}  // namespace fullshard::base
