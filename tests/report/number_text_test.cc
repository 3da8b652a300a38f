// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/number_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fullshard::report {
namespace {

TEST(NumberText, ShowsALossWithFourDecimals) {
  EXPECT_EQ(format_loss(2.34567), "2.3457");
  EXPECT_EQ(format_loss(0), "0.0000");
  EXPECT_EQ(format_loss(123456), "1.23e+05");
  EXPECT_EQ(format_loss(0.00012345), "0.000123");
  EXPECT_EQ(format_loss(std::nan("")), "nan");
  EXPECT_EQ(format_loss(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(NumberText, ShowsTimes) {
  EXPECT_EQ(format_clock(0), "0:00");
  EXPECT_EQ(format_clock(59.6), "1:00");
  EXPECT_EQ(format_clock(754), "12:34");
  EXPECT_EQ(format_clock(10925), "3:02:05");
  EXPECT_EQ(format_clock(183725), "2 d 03:02:05");
  EXPECT_EQ(format_clock(-1), "unknown");
  EXPECT_EQ(format_clock(std::nan("")), "unknown");
  EXPECT_EQ(format_seconds(0.00085), "850 us");
  EXPECT_EQ(format_seconds(0.01234), "12.3 ms");
  EXPECT_EQ(format_seconds(0.9996), "1 s");
  EXPECT_EQ(format_seconds(1.254), "1.25 s");
  EXPECT_EQ(format_seconds(754), "12:34");
  EXPECT_EQ(format_utc(1936163289), "2031-05-10T07:08:09Z");
}

TEST(NumberText, ShowsRatesAndShares) {
  EXPECT_EQ(format_rate(45612.4), "45.6 K");
  EXPECT_EQ(format_rate(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(format_rate(1e300), "1e+300");
  EXPECT_EQ(format_percent(0.4123), "41.2%");
  EXPECT_EQ(format_significant(3e-4, 3), "0.0003");
}

}  // namespace
}  // namespace fullshard::report
