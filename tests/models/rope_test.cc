// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/llama/rope.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

namespace fullshard::models {
namespace {

TEST(RopeTables, AreTheFirstRowsOfOneThatStays) {
  const RopeConfig config;
  RopeTables tables(config, 16);
  const auto first = tables.table(12, at::kCPU);
  const auto longer = tables.table(300, at::kCPU);
  const auto shorter = tables.table(9, at::kCPU);
  for (const auto& [table, length] :
       {std::pair(first, 12), std::pair(longer, 300), std::pair(shorter, 9)}) {
    const auto wanted = make_rotary_table(rope_frequencies(config, 16), length);
    EXPECT_EQ(table->cos.sizes(), wanted.cos.sizes());
    EXPECT_TRUE(table->cos.is_contiguous() && table->sin.is_contiguous());
    EXPECT_TRUE(at::equal(table->cos, wanted.cos));
    EXPECT_TRUE(at::equal(table->sin, wanted.sin));
  }
  // What was handed out is never given up for another length.
  EXPECT_EQ(shorter->cos.const_data_ptr(), first->cos.const_data_ptr());
  EXPECT_EQ(tables.table(12, at::kCPU)->sin.const_data_ptr(), first->sin.const_data_ptr());
  EXPECT_EQ(tables.table(512, at::kCPU)->cos.const_data_ptr(), longer->cos.const_data_ptr());
}

}  // namespace
}  // namespace fullshard::models
