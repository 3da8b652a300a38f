// SPDX-License-Identifier: Apache-2.0
#include "fullshard/planning/deepspeed_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"

namespace fullshard::planning {
namespace {

// 3e9 parameters, 33e6 in the largest layer, 8 GPUs: computed by hand from DeepSpeed's formulas.
TEST(DeepSpeedTable, HasItsRowsInItsOrder) {
  const auto rows = deepspeed_table({3'000'000'000, 33'000'000}, 8, 1);
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0].cpu_bytes, int64_t{3'000'000'000} * 32 * 3 / 2);
  EXPECT_EQ(rows[0].gpu_bytes, int64_t{6'000'000'000});
  EXPECT_EQ(rows[1].cpu_bytes, int64_t{3'000'000'000} * 32 * 3 / 2);
  EXPECT_EQ(rows[1].gpu_bytes, int64_t{6'000'000'000} + 6'750'000'000);
  EXPECT_TRUE(rows[2].offload_optimizer && rows[2].offload_param && rows[2].zero_init);
  EXPECT_EQ(rows[2].cpu_bytes, int64_t{3'000'000'000} * 18 * 3 / 2);
  EXPECT_EQ(rows[2].gpu_bytes, 132'000'000);
  EXPECT_EQ(rows[3].cpu_bytes, int64_t{3'000'000'000} * 32 * 3 / 2);
  EXPECT_EQ(rows[4].gpu_bytes, 132'000'000 + 750'000'000);
  EXPECT_EQ(rows[4].cpu_bytes, int64_t{3'000'000'000} * 16 * 3 / 2);
  EXPECT_EQ(rows[6].gpu_bytes, int64_t{132'000'000} + 6'750'000'000);
  EXPECT_EQ(rows[6].cpu_bytes, int64_t{132'000'000} * 8 * 3 / 2);
  EXPECT_EQ(rows[7].cpu_bytes, int64_t{12'000'000'000} * 8 * 3 / 2);
  EXPECT_FALSE(rows[7].zero_init);
}

TEST(DeepSpeedTable, RefusesWhatCannotBeCounted) {
  try {
    deepspeed_table({int64_t{1} << 62, 1}, 1, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(),
                 "--deepspeed-table: has 9.22e+18 bytes, expected at most 9.2e+18; give fewer "
                 "parameters, GPUs or nodes");
  }
}

TEST(DeepSpeedTable, IsOneObjectWithBothStages) {
  const auto json = nlohmann::json::parse(deepspeed_json(deepspeed_table({1000, 100}, 2, 2)));
  EXPECT_EQ(json["zero2"].size(), 2u);
  EXPECT_EQ(json["zero3"].size(), 6u);
  EXPECT_FALSE(json["zero2"][0].contains("zero_init"));
  EXPECT_EQ(json["zero3"][0]["largest_layer_bytes"], 400);
}

}  // namespace
}  // namespace fullshard::planning
