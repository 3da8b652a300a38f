// SPDX-License-Identifier: Apache-2.0
// The table of all pieces of a step in device memory: with it a step takes one launch, or a few,
// whatever the number of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fullshard/optim/cuda/device_piece.h"

namespace fullshard::optim {

// Pieces that one launch serves: one storage, at most kSettingsPerLaunch settings.
struct DeviceSegment {
  DeviceStorage storage = DeviceStorage::any;
  int64_t first_block = 0;
  int64_t num_blocks = 0;
  int32_t first_setting = 0;
  int32_t num_settings = 0;

  bool operator==(const DeviceSegment&) const = default;
};

class DeviceTable {
 public:
  // Brings the table up to date. Nothing is done when no piece has changed; when only addresses
  // have, as those of gradients do, the blocks stay. Uploads are asynchronous on the current
  // stream; `device` may be the CPU, for tests.
  void set(std::vector<DevicePiece> pieces, at::Device device);

  const std::vector<DeviceSegment>& segments() const { return segments_; }
  // In the table's order: by storage, then by setting.
  const std::vector<DevicePiece>& pieces() const { return pieces_; }
  int64_t num_blocks() const { return num_blocks_; }
  int num_states() const;
  // That a step over all pieces reads and writes.
  int64_t bytes_of_a_pass() const;
  at::Device device() const { return on_device_.device(); }

  // DevicePiece and DeviceBlock, as bytes.
  const at::Tensor& pieces_on_device() const { return on_device_; }
  const at::Tensor& blocks_on_device() const { return blocks_on_device_; }

  // How often something was uploaded.
  int num_piece_uploads() const { return num_piece_uploads_; }
  int num_block_uploads() const { return num_block_uploads_; }

 private:
  void order_pieces();
  void upload_blocks(at::Device device);

  std::vector<DevicePiece> given_;   // as set() got them
  std::vector<DevicePiece> pieces_;  // as uploaded
  std::vector<DeviceSegment> segments_;
  std::vector<int64_t> block_numels_;  // of the pieces that the uploaded blocks are for
  int64_t num_blocks_ = 0;
  at::Tensor on_device_;         // of pieces, bytes
  at::Tensor blocks_on_device_;  // of blocks, bytes
  int num_piece_uploads_ = 0;
  int num_block_uploads_ = 0;
};

}  // namespace fullshard::optim
