// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/device_pieces.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::optim {
namespace {

StoredAs stored_as(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return StoredAs::fp32;
    case at::kBFloat16:
      return StoredAs::bf16;
    case at::kHalf:
      return StoredAs::fp16;
    case at::kDouble:
      return StoredAs::fp64;
    default:
      fail("optimizers keep values in float32, float64, bfloat16 or float16, not in {}",
           c10::toString(dtype));
  }
}

// `first` counts elements. Views are not made: for thousands of pieces they would take longer than
// the step.
DeviceArray array_at(at::Device device, const at::Tensor& tensor, int64_t first = 0) {
  if (!tensor.defined()) return {};
  tensor::check_reachable("optimizer_step", device, tensor, tensor::Reach::pinned_too);
  return {static_cast<std::byte*>(tensor.data_ptr()) + first * tensor.element_size(),
          stored_as(tensor.scalar_type())};
}

}  // namespace

int DevicePieces::setting_of(const ParameterSettings& parameter) {
  const auto index = static_cast<size_t>(parameter.index);
  if (index >= settings_.size()) settings_.resize(index + 1, -1);
  if (settings_[index] >= 0) return settings_[index];
  const Rules rules{parameter.lr_scale, parameter.weight_decay};
  const auto found = std::find(rules_.begin(), rules_.end(), rules);
  settings_[index] = static_cast<int>(found - rules_.begin());
  if (found == rules_.end()) rules_.push_back(rules);
  return settings_[index];
}

const DeviceTable& DevicePieces::table_of(const std::vector<PieceView>& pieces,
                                          const StatePlaces& states,
                                          const ParameterTable& parameters, at::Device device) {
  std::vector<DevicePiece> entries;
  entries.reserve(pieces.size());
  for (const auto& piece : pieces) {
    if (piece.numel() == 0 || !piece.gradient.defined()) continue;
    const auto& parameter = parameters.of(piece.name);
    DevicePiece entry;
    entry.master = array_at(device, piece.master);
    if (piece.lower.defined()) {
      tensor::check_reachable("optimizer_step", device, piece.lower, tensor::Reach::pinned_too);
      entry.master = {piece.lower.data_ptr(), StoredAs::lower_half};
    }
    entry.gradient = array_at(device, piece.gradient);
    entry.shown = array_at(device, piece.shown);
    const auto& of_group = states.arrays(piece.group);
    check(of_group.size() <= std::size(entry.states),
          "parameter '{}' has {} states, and steps on a device know at most {}", piece.name,
          of_group.size(), std::size(entry.states));
    for (size_t i = 0; i < of_group.size(); ++i) {
      entry.states[i] = array_at(device, of_group[i], piece.offset - states.first());
    }
    entry.numel = piece.numel();
    entry.first = piece.begin;
    entry.name_hash = parameter.name_hash;
    entry.setting = setting_of(parameter);
    entry.tensor = parameter.index;
    entries.push_back(entry);
  }
  if (next_ == tables_.size()) tables_.emplace_back();
  auto& table = tables_[next_++];
  table.set(std::move(entries), device);
  return table;
}

}  // namespace fullshard::optim
