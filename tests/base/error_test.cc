// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"

#include <gtest/gtest.h>

namespace fullshard::base {
namespace {

TEST(Error, CheckSaysNothingWhenTheConditionHolds) {
  EXPECT_NO_THROW(check(true, "width is {}", 3));
}

TEST(Error, CheckFormatsItsParts) {
  try {
    check(false, "width is {}, expected {}", 3, "more");
    FAIL() << "check did not throw";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "width is 3, expected more");
    EXPECT_EQ(error.exit_status(), 1);
  }
}

TEST(Error, TheKindDecidesTheExitStatus) {
  try {
    fail_as(ErrorKind::usage, "no such flag '{}'", "--rank");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2);
  }
  EXPECT_EQ(Error("x", ErrorKind::no_fit).exit_status(), 3);
  EXPECT_EQ(Error("x", ErrorKind::input).exit_status(), 4);
}

}  // namespace
}  // namespace fullshard::base
