// SPDX-License-Identifier: Apache-2.0
#include "tests/training/expectations.h"

#include <gtest/gtest.h>

#include <cstring>

namespace fullshard::testing {

void expect_close(const Outcome& actual, const Outcome& expected, double relative) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], relative * expected.losses[i])
        << "step " << i;
  }
  for (size_t i = 0; i < actual.norms.size(); ++i) {
    EXPECT_NEAR(actual.norms[i], expected.norms[i], relative * expected.norms[i]) << "step " << i;
  }
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (const auto& [name, values] : expected.parameters) {
    const auto& own = actual.parameters.at(name);
    const double scale = values.norm().item<double>();
    EXPECT_LE((own - values).norm().item<double>(), relative * scale) << name;
  }
}

void expect_same_bits(const Outcome& actual, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(actual.losses, expected.losses) << what;
  EXPECT_EQ(actual.norms, expected.norms) << what;
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size()) << what;
  for (const auto& [name, values] : expected.parameters) {
    const auto& own = actual.parameters.at(name);
    ASSERT_EQ(own.nbytes(), values.nbytes());
    EXPECT_EQ(std::memcmp(own.data_ptr(), values.data_ptr(), own.nbytes()), 0)
        << what << ": " << name;
  }
}

}  // namespace fullshard::testing
