// SPDX-License-Identifier: Apache-2.0
// The table of a step's pieces; here in the memory of the CPU, which needs no device.
#include "fullshard/optim/cuda/device_table.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

namespace fullshard::testing {
namespace {

optim::DevicePiece piece_of(const at::Tensor& values, optim::StoredAs gradient, int setting) {
  optim::DevicePiece piece;
  piece.master = {values.data_ptr(), optim::StoredAs::fp32};
  piece.gradient = {values.data_ptr(), gradient};
  piece.numel = values.numel();
  piece.setting = setting;
  return piece;
}

TEST(DeviceTable, CutsPiecesIntoChunks) {
  const auto large = at::zeros({2 * optim::kDeviceChunk + 1}), small = at::zeros({1});
  optim::DeviceTable table;
  table.set({piece_of(large, optim::StoredAs::fp32, 0), piece_of(small, optim::StoredAs::fp32, 0)},
            at::kCPU);
  EXPECT_EQ(table.num_blocks(), 4);
  const auto* blocks =
      static_cast<const optim::DeviceBlock*>(table.blocks_on_device().const_data_ptr());
  const std::vector<std::pair<int, int>> expected = {{0, 0}, {0, 1}, {0, 2}, {1, 0}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(blocks[i].piece, expected[i].first) << i;
    EXPECT_EQ(blocks[i].chunk, expected[i].second) << i;
  }
  EXPECT_EQ(static_cast<const optim::DevicePiece*>(table.pieces_on_device().const_data_ptr())[1]
                .first_block,
            3);
  EXPECT_EQ(table.segments(),
            (std::vector<optim::DeviceSegment>{{optim::DeviceStorage::fp32, 0, 4, 0, 1}}));
}

TEST(DeviceTable, BringsPiecesOfOneStorageTogether) {
  const auto values = at::zeros({8});
  optim::DeviceTable table;
  table.set(
      {piece_of(values, optim::StoredAs::fp16, 0), piece_of(values, optim::StoredAs::fp32, 1),
       piece_of(values, optim::StoredAs::bf16, 0), piece_of(values, optim::StoredAs::fp32, 0)},
      at::kCPU);
  EXPECT_EQ(table.segments(), (std::vector<optim::DeviceSegment>{
                                  {optim::DeviceStorage::fp32, 0, 2, 0, 2},
                                  {optim::DeviceStorage::fp32_bf16_gradient, 2, 1, 0, 1},
                                  {optim::DeviceStorage::any, 3, 1, 0, 1},
                              }));
  EXPECT_EQ(table.pieces()[0].setting, 0);
  EXPECT_EQ(table.pieces()[1].setting, 1);
}

TEST(DeviceTable, NeedsAsManyLaunchesAsItsSettings) {
  const auto values = at::zeros({8});
  std::vector<optim::DevicePiece> pieces;
  for (int i = 0; i < 3000; ++i) {
    pieces.push_back(piece_of(values, optim::StoredAs::fp32, i % (optim::kSettingsPerLaunch + 8)));
  }
  optim::DeviceTable table;
  table.set(pieces, at::kCPU);
  ASSERT_EQ(table.segments().size(), 2);
  EXPECT_EQ(table.segments()[0].num_blocks + table.segments()[1].num_blocks, 3000);
  EXPECT_EQ(table.segments()[1].first_setting, optim::kSettingsPerLaunch);
  EXPECT_EQ(table.segments()[1].num_settings, 8);
}

TEST(DeviceTable, IsUploadedOnlyWhenSomethingChanged) {
  const auto values = at::zeros({8}), other = at::zeros({8}), longer = at::zeros({9});
  optim::DeviceTable table;
  table.set({piece_of(values, optim::StoredAs::fp32, 0)}, at::kCPU);
  table.set({piece_of(values, optim::StoredAs::fp32, 0)}, at::kCPU);
  EXPECT_EQ(table.num_piece_uploads(), 1);
  table.set({piece_of(other, optim::StoredAs::fp32, 0)}, at::kCPU);
  EXPECT_EQ(table.num_piece_uploads(), 2);
  EXPECT_EQ(table.num_block_uploads(), 1);
  table.set({piece_of(longer, optim::StoredAs::fp32, 0)}, at::kCPU);
  EXPECT_EQ(table.num_piece_uploads(), 3);
  EXPECT_EQ(table.num_block_uploads(), 2);
}

TEST(DeviceTable, KnowsWhichPiecesCanBeReadFourElementsAtATime) {
  const auto values = at::zeros({16});
  optim::DeviceTable table;
  table.set({piece_of(values, optim::StoredAs::fp32, 0),
             piece_of(values.narrow(0, 1, 8), optim::StoredAs::fp32, 0),
             piece_of(values.narrow(0, 2, 8), optim::StoredAs::fp32, 0),
             piece_of(values.narrow(0, 4, 8), optim::StoredAs::fp32, 0)},
            at::kCPU);
  EXPECT_TRUE(table.pieces()[0].is_aligned);
  EXPECT_FALSE(table.pieces()[1].is_aligned);
  EXPECT_FALSE(table.pieces()[2].is_aligned);
  EXPECT_TRUE(table.pieces()[3].is_aligned);
}

}  // namespace
}  // namespace fullshard::testing
