// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/cuda/device_table.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::optim {
namespace {

DeviceStorage storage_of(const DevicePiece& piece) {
  if (piece.master.stored == StoredAs::fp64) return DeviceStorage::fp64;
  const bool states_are_fp32 =
      std::all_of(std::begin(piece.states), std::end(piece.states), [](const DeviceArray& state) {
        return state.stored == StoredAs::fp32 || state.stored == StoredAs::nothing;
      });
  if (piece.master.stored == StoredAs::lower_half) {
    check(states_are_fp32 && piece.gradient.stored == StoredAs::fp32 &&
              piece.shown.stored == StoredAs::bf16,
          "a step on a device takes masters in halves beside fp32 gradients and states only");
    return DeviceStorage::fp32_in_halves;
  }
  if (piece.master.stored != StoredAs::fp32 || !states_are_fp32) return DeviceStorage::any;
  if (piece.gradient.stored == StoredAs::fp32) return DeviceStorage::fp32;
  return piece.gradient.stored == StoredAs::bf16 ? DeviceStorage::fp32_bf16_gradient
                                                 : DeviceStorage::any;
}

// Four elements as one access, two for fp64.
bool is_aligned(const DeviceArray& array) {
  const auto bytes = static_cast<uintptr_t>(std::min<int64_t>(4 * bytes_of(array.stored), 16));
  return array.data == nullptr || reinterpret_cast<uintptr_t>(array.data) % bytes == 0;
}

bool all_are_aligned(const DevicePiece& piece) {
  return is_aligned(piece.master) && is_aligned(piece.gradient) && is_aligned(piece.shown) &&
         std::all_of(std::begin(piece.states), std::end(piece.states), is_aligned);
}

template <class Entry>
at::Tensor uploaded(std::span<const Entry> entries, at::Device device) {
  const auto bytes = static_cast<int64_t>(entries.size_bytes());
  // Pinned memory comes from torch's cache, which does not reuse it before the copy is done.
  auto staging = at::empty(
      {bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(device.type() == at::kCUDA));
  if (bytes > 0) std::memcpy(staging.mutable_data_ptr(), entries.data(), entries.size_bytes());
  if (device.type() == at::kCPU) return staging;
  return staging.to(device, at::kByte, /*non_blocking=*/true);
}

int64_t blocks_of(const DevicePiece& piece) {
  return (piece.numel + kDeviceChunk - 1) / kDeviceChunk;
}

}  // namespace

void DeviceTable::set(std::vector<DevicePiece> pieces, at::Device device) {
  if (on_device_.defined() && on_device_.device() == device && pieces == given_) return;
  given_ = std::move(pieces);
  pieces_ = given_;
  order_pieces();
  on_device_ = uploaded(std::span<const DevicePiece>(pieces_), device);
  ++num_piece_uploads_;
  upload_blocks(device);
}

int64_t DeviceTable::bytes_of_a_pass() const {
  int64_t bytes = 0;
  for (const auto& piece : pieces_) {
    // The upper half of a master in halves is read, too.
    const bool is_in_halves = piece.master.stored == StoredAs::lower_half;
    int64_t each = 2 * bytes_of(piece.master.stored) + bytes_of(piece.gradient.stored) +
                   (is_in_halves ? 2 : 1) * bytes_of(piece.shown.stored);
    for (const auto& state : piece.states) each += 2 * bytes_of(state.stored);
    bytes += each * piece.numel;
  }
  return bytes;
}

void DeviceTable::order_pieces() {
  const auto key = [](const DevicePiece& piece) {
    return std::tuple(storage_of(piece), piece.setting);
  };
  std::stable_sort(
      pieces_.begin(), pieces_.end(),
      [&](const DevicePiece& one, const DevicePiece& other) { return key(one) < key(other); });
  segments_.clear();
  num_blocks_ = 0;
  for (auto& piece : pieces_) {
    piece.is_aligned = all_are_aligned(piece);
    piece.first_block = static_cast<int32_t>(num_blocks_);
    piece.num_blocks = static_cast<int32_t>(blocks_of(piece));
    const auto storage = storage_of(piece);
    if (segments_.empty() || segments_.back().storage != storage ||
        piece.setting - segments_.back().first_setting >= kSettingsPerLaunch) {
      segments_.push_back({storage, num_blocks_, 0, piece.setting, 0});
    }
    auto& segment = segments_.back();
    segment.num_blocks += piece.num_blocks;
    segment.num_settings = piece.setting - segment.first_setting + 1;
    num_blocks_ += piece.num_blocks;
  }
  check(num_blocks_ <= std::numeric_limits<int32_t>::max(),
        "an optimizer's step on a device has {} blocks of {} elements, expected fewer than 2^31; "
        "use more ranks or a sub_group_size",
        num_blocks_, kDeviceChunk);
}

void DeviceTable::upload_blocks(at::Device device) {
  std::vector<int64_t> numels;
  numels.reserve(pieces_.size());
  for (const auto& piece : pieces_) numels.push_back(piece.numel);
  if (blocks_on_device_.defined() && blocks_on_device_.device() == device &&
      numels == block_numels_) {
    return;
  }
  block_numels_ = std::move(numels);
  std::vector<DeviceBlock> blocks;
  blocks.reserve(static_cast<size_t>(num_blocks_));
  for (size_t i = 0; i < pieces_.size(); ++i) {
    for (int32_t chunk = 0; chunk < pieces_[i].num_blocks; ++chunk) {
      blocks.push_back({static_cast<int32_t>(i), chunk});
    }
  }
  blocks_on_device_ = uploaded(std::span<const DeviceBlock>(blocks), device);
  ++num_block_uploads_;
}

int DeviceTable::num_states() const {
  if (pieces_.empty()) return 0;
  const auto& states = pieces_.front().states;
  return static_cast<int>(
      std::count_if(std::begin(states), std::end(states),
                    [](const DeviceArray& state) { return state.data != nullptr; }));
}

}  // namespace fullshard::optim
