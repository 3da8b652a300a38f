// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/batch_tensors.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TokenBatch pairs_with(std::vector<int64_t> mask, std::vector<int64_t> labels) {
  return {.rows = 2,
          .columns = 2,
          .decoder_columns = 2,
          .input_ids = {5, 6, 7, 8},
          .attention_mask = std::move(mask),
          .labels = std::move(labels)};
}

TEST(BatchTensors, CarryLengthsOfPaddedRows) {
  TokenBatch batch = pairs_with({1, 0, 1, 1}, {5, 6, 7, -100});
  const ModelInputs inputs = tensors_of(batch, at::kCPU);
  EXPECT_THAT(inputs.lengths, ElementsAre(1, 2));
  EXPECT_THAT(inputs.label_lengths, ElementsAre(2, 1));
  EXPECT_TRUE(inputs.attention_mask.equal(at::tensor({1, 0, 1, 1}, at::kLong).view({2, 2})));
}

TEST(BatchTensors, HaveNoMaskThatHidesNothing) {
  TokenBatch batch = pairs_with({1, 1, 1, 1}, {5, 6, 7, 8});
  const ModelInputs inputs = tensors_of(batch, at::kCPU);
  EXPECT_FALSE(inputs.attention_mask.defined());
  EXPECT_THAT(inputs.lengths, IsEmpty());
  EXPECT_THAT(inputs.label_lengths, IsEmpty());
}

TEST(BatchTensors, HaveNoLabelLengthsOfOtherModels) {
  TokenBatch batch = pairs_with({}, {5, 6, 7, -100});
  batch.decoder_columns = 0;
  EXPECT_THAT(tensors_of(batch, at::kCPU).label_lengths, IsEmpty());
}

}  // namespace
}  // namespace fullshard::train
