// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fullshard::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TokenBatch batch_with(std::vector<int64_t> mask) {
  return {.rows = 2,
          .columns = 3,
          .input_ids = std::vector<int64_t>(6),
          .attention_mask = std::move(mask)};
}

TEST(TokenBatch, KnowsHowLongItsRowsAre) {
  EXPECT_THAT(batch_with({1, 1, 0, 1, 1, 1}).lengths(), ElementsAre(2, 3));
  EXPECT_THAT(batch_with({1, 1, 1, 1, 1, 1}).lengths(), IsEmpty()) << "nothing is padding";
  EXPECT_THAT(batch_with({}).lengths(), IsEmpty());
  EXPECT_THAT(batch_with({0, 1, 0, 1, 1, 1}).lengths(), IsEmpty()) << "padding in front";
  EXPECT_THAT(batch_with({0, 0, 0, 1, 1, 1}).lengths(), IsEmpty()) << "an empty row";
}

TEST(TokenBatch, KnowsHowLongItsLabelsAre) {
  TokenBatch batch = batch_with({});
  batch.decoder_columns = 4;
  batch.labels = {5, -100, 7, -100, 8, -100, -100, -100};
  EXPECT_THAT(batch.label_lengths(), ElementsAre(3, 1));
  batch.labels = {5, 6, 7, 8, -100, -100, -100, 9};
  EXPECT_THAT(batch.label_lengths(), IsEmpty()) << "nothing follows the last one";
}

}  // namespace
}  // namespace fullshard::data
