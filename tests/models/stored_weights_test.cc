// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/stored_weights.h"

#include <gtest/gtest.h>

namespace fullshard::models {
namespace {

StoredWeights some_weights(bool equal = true) {
  return {{{"a.h.0.x", {2, 3}},
           {"a.h.1.x", {2, 3}},
           {"a.h.1.y", {5}},
           {"a.h.10.x", {2, 3}},
           {"a.h.z.x", {1}},
           {"a.h.7", {1}},
           {"h.0.x", {4, 4}}},
          [equal](const std::string&, const std::string&) { return equal; }};
}

TEST(StoredWeights, TellADimensionOfTheFirstThatIsThere) {
  const auto stored = some_weights();
  EXPECT_EQ(stored.dimension({"b", "h.0.x", "a.h.0.x"}, 0), 4);
  EXPECT_EQ(stored.dimension({"a.h.0.x"}, 1), 3);
  EXPECT_EQ(stored.dimension({"a.h.1.y"}, 1), std::nullopt);
  EXPECT_EQ(stored.dimension({"b"}, 0), std::nullopt);
}

TEST(StoredWeights, CountLayersByTheirNumbers) {
  const auto stored = some_weights();
  EXPECT_EQ(stored.num_layers({"a.h.", "h."}), 3);
  EXPECT_EQ(stored.num_layers({"b.", "h."}), 1);
  EXPECT_EQ(stored.num_layers({"b."}), std::nullopt);
}

TEST(StoredWeights, AreEqualOnlyInOneShape) {
  EXPECT_TRUE(some_weights().are_equal("a.h.0.x", "a.h.1.x"));
  EXPECT_FALSE(some_weights(false).are_equal("a.h.0.x", "a.h.1.x"));
  EXPECT_FALSE(some_weights().are_equal("a.h.0.x", "h.0.x"));
  EXPECT_FALSE(some_weights().are_equal("a.h.0.x", "b"));
  EXPECT_FALSE(StoredWeights().are_there());
  EXPECT_TRUE(some_weights().are_there());
}

}  // namespace
}  // namespace fullshard::models
