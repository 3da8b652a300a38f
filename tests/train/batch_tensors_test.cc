// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/batch_tensors.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/models/common/unpadded.h"

namespace fullshard::train {
namespace {

using ::testing::ElementsAre;

TokenBatch pairs_with(std::vector<int64_t> mask, std::vector<int64_t> labels) {
  return {.rows = 2,
          .columns = 2,
          .decoder_columns = 2,
          .input_ids = {5, 6, 7, 8},
          .attention_mask = std::move(mask),
          .labels = std::move(labels)};
}

TEST(BatchTensors, CarryTheLayoutOfPaddedRows) {
  TokenBatch batch = pairs_with({1, 0, 1, 1}, {5, 6, 7, -100});
  const ModelInputs inputs = tensors_of(batch, at::kCPU);
  ASSERT_NE(inputs.unpadded, nullptr);
  ASSERT_NE(inputs.unpadded_labels, nullptr);
  EXPECT_THAT(inputs.unpadded->documents->lengths, ElementsAre(1, 2)) << "no filler on a CPU";
  EXPECT_THAT(inputs.unpadded_labels->documents->lengths, ElementsAre(2, 1));
  EXPECT_TRUE(inputs.attention_mask.equal(at::tensor({1, 0, 1, 1}, at::kLong).view({2, 2})));
}

TEST(BatchTensors, HaveNoMaskThatHidesNothing) {
  TokenBatch batch = pairs_with({1, 1, 1, 1}, {5, 6, 7, 8});
  const ModelInputs inputs = tensors_of(batch, at::kCPU);
  EXPECT_FALSE(inputs.attention_mask.defined());
  EXPECT_EQ(inputs.unpadded, nullptr);
  EXPECT_EQ(inputs.unpadded_labels, nullptr);
}

TEST(BatchTensors, HaveNoLayoutOfLabelsOfOtherModels) {
  TokenBatch batch = pairs_with({}, {5, 6, 7, -100});
  batch.decoder_columns = 0;
  EXPECT_EQ(tensors_of(batch, at::kCPU).unpadded_labels, nullptr);
}

}  // namespace
}  // namespace fullshard::train
