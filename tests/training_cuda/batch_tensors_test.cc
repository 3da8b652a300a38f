// SPDX-License-Identifier: Apache-2.0
// Padded batches on a GPU: of few shapes.
#include "fullshard/train/batch_tensors.h"

#include <gtest/gtest.h>

#include "fullshard/models/common/unpadded.h"
#include "tests/gpu.h"

namespace fullshard::testing {
namespace {

constexpr int64_t kBatchRows = 32;

// Rows of 100 tokens but for the first, which fills `columns`.
TokenBatch batch_as_wide_as(int64_t columns) {
  TokenBatch batch{.rows = kBatchRows, .columns = columns};
  const auto num_places = static_cast<size_t>(kBatchRows * columns);
  batch.input_ids.assign(num_places, 7);
  batch.labels.assign(num_places, 7);
  for (int64_t place = 0; place < kBatchRows * columns; ++place) {
    batch.attention_mask.push_back(place < columns || place % columns < 100 ? 1 : 0);
  }
  return batch;
}

TEST(DeviceBatchTensors, AreAsWideAsOthersWhereNothingIsComputedForPadding) {
  TokenBatch batch = batch_as_wide_as(300);
  batch.most_columns = 500;
  const ModelInputs inputs = tensors_of(batch, kGpu);
  ASSERT_NE(inputs.unpadded, nullptr);
  EXPECT_EQ(inputs.input_ids.sizes(), at::IntArrayRef({kBatchRows, 384}));
  EXPECT_EQ(inputs.attention_mask.sum().item<int64_t>(), 300 + 31 * 100);
  EXPECT_EQ(inputs.labels.eq(-100).sum().item<int64_t>(), kBatchRows * 84);
  EXPECT_EQ(inputs.unpadded->places.numel(), 3584) << "3400 real ones, up to a multiple of 512";
  EXPECT_EQ(inputs.unpadded->places.max().item<int64_t>(), 31 * 384 + 99);
  EXPECT_EQ(inputs.unpadded->documents->lengths.size(), kBatchRows + 1);
  EXPECT_EQ(inputs.unpadded->documents->longest, 512);
}

TEST(DeviceBatchTensors, AreNoWiderThanRowsMayBe) {
  TokenBatch batch = batch_as_wide_as(300);
  batch.most_columns = 320;
  EXPECT_EQ(tensors_of(batch, kGpu).input_ids.size(1), 320);
  batch.most_columns = 0;
  EXPECT_EQ(tensors_of(batch, kGpu).input_ids.size(1), 300) << "nothing is known of it";
}

TEST(DeviceBatchTensors, StayAsTheyAreWithLittlePadding) {
  TokenBatch batch = batch_as_wide_as(104);
  batch.most_columns = 500;
  const ModelInputs inputs = tensors_of(batch, kGpu);
  EXPECT_EQ(inputs.unpadded, nullptr);
  EXPECT_EQ(inputs.input_ids.size(1), 104);
}

}  // namespace
}  // namespace fullshard::testing
