// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/batch_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/models/common/unpadded.h"

namespace fullshard::train {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kWidth = 100;

// Two rows, of which so many tokens and labels are real.
TokenBatch pairs_with(std::vector<int64_t> tokens, std::vector<int64_t> labels) {
  TokenBatch batch{.rows = 2, .columns = kWidth, .decoder_columns = kWidth};
  for (size_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < kWidth; ++column) {
      batch.input_ids.push_back(5 + column);
      batch.attention_mask.push_back(column < tokens[row] ? 1 : 0);
      batch.labels.push_back(column < labels[row] ? 7 : -100);
    }
  }
  return batch;
}

TEST(BatchTensors, CarryTheLayoutOfPaddedRows) {
  TokenBatch batch = pairs_with({10, 99}, {70, 30});
  const ModelInputs inputs = tensors_of(batch, at::kCPU);
  ASSERT_NE(inputs.unpadded, nullptr);
  ASSERT_NE(inputs.unpadded_labels, nullptr);
  EXPECT_THAT(inputs.unpadded->documents->lengths, ElementsAre(10, 99, 19)) << "128 altogether";
  EXPECT_THAT(inputs.unpadded_labels->documents->lengths, ElementsAre(70, 30, 28)) << "too";
  EXPECT_EQ(inputs.attention_mask.sum().item<int64_t>(), 109);
  EXPECT_EQ(inputs.input_ids.sizes(), at::IntArrayRef({2, kWidth})) << "as wide as before";
}

TEST(BatchTensors, HaveNoMaskThatHidesNothing) {
  TokenBatch batch = pairs_with({100, 100}, {100, 100});
  const ModelInputs inputs = tensors_of(batch, at::kCPU);
  EXPECT_FALSE(inputs.attention_mask.defined());
  EXPECT_EQ(inputs.unpadded, nullptr);
  EXPECT_EQ(inputs.unpadded_labels, nullptr);
}

TEST(BatchTensors, HaveNoLayoutWhereLittleIsPadding) {
  TokenBatch batch = pairs_with({100, 80}, {90, 100});
  const ModelInputs inputs = tensors_of(batch, at::kCPU);
  EXPECT_TRUE(inputs.attention_mask.defined());
  EXPECT_EQ(inputs.unpadded, nullptr);
  EXPECT_EQ(inputs.unpadded_labels, nullptr);
}

TEST(BatchTensors, HaveNoLayoutOfLabelsOfOtherModels) {
  TokenBatch batch = pairs_with({100, 100}, {100, 30});
  batch.decoder_columns = 0;
  EXPECT_EQ(tensors_of(batch, at::kCPU).unpadded_labels, nullptr);
}

}  // namespace
}  // namespace fullshard::train
