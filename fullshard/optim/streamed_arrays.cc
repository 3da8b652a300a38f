// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/streamed_arrays.h"

#include <algorithm>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"

namespace fullshard::optim {
namespace {

StreamedArray::Role role_of(engine::MasterPart::Kind kind) {
  switch (kind) {
    case engine::MasterPart::Kind::nearest:
      return StreamedArray::Role::shown;
    case engine::MasterPart::Kind::lower:
      return StreamedArray::Role::lower;
    default:
      return StreamedArray::Role::master;
  }
}

std::vector<StreamedArray> arrays_of(const engine::ParamGroup& group,
                                     const std::vector<at::Tensor>& states) {
  std::vector<StreamedArray> arrays;
  if (group.spec().residence.stepped_on == tiers::Tier::host) return arrays;
  const auto tier = group.spec().residence.states;
  if (tier != tiers::Tier::device) {
    for (size_t i = 0; i < states.size(); ++i) {
      arrays.push_back({.state = static_cast<int>(i), .resting = states[i], .tier = tier});
    }
  }
  for (const auto& part : group.master_parts()) {
    if (part.tier == tiers::Tier::device) continue;
    arrays.push_back({.role = role_of(part.kind), .resting = part.values, .tier = part.tier});
  }
  if (const auto* away = group.gradients().away()) {
    arrays.push_back({.role = StreamedArray::Role::gradient, .resting = away->resting()});
  }
  return arrays;
}

}  // namespace

int64_t StreamedGroup::element_bytes() const {
  int64_t bytes = 0;
  for (const auto& array : arrays) bytes += array.resting.element_size();
  return bytes;
}

bool StreamedGroup::has(tiers::Tier tier) const {
  return std::any_of(arrays.begin(), arrays.end(),
                     [tier](const StreamedArray& array) { return array.tier == tier; });
}

std::vector<at::Tensor> resting_arrays(const engine::ParamGroup& group,
                                       const std::vector<at::Tensor>& states) {
  auto arrays = states;
  for (const auto& part : group.master_parts()) arrays.push_back(part.values);
  return arrays;
}

StreamedGroup streamed_group(const engine::ParamGroup& group, const std::vector<at::Tensor>& states,
                             int64_t window_bytes, int64_t most_numel) {
  StreamedGroup streamed{.arrays = arrays_of(group, states), .numel = group.layout().shard_numel()};
  if (!streamed.is_any()) return streamed;
  const int64_t align = streamed.has(tiers::Tier::disk) ? kDiskChunkAlign : kChunkAlign;
  const int64_t bytes = streamed.element_bytes();
  check(window_bytes >= align * bytes,
        "offload.window_bytes is {}, expected at least {}: {} elements of {} bytes of state",
        window_bytes, align * bytes, align, bytes);
  int64_t most = window_bytes / bytes;
  if (most_numel > 0) most = std::min(most, std::max(most_numel, align));
  streamed.chunk_numel = std::min(most / align * align, round_up(streamed.numel, align));
  return streamed;
}

}  // namespace fullshard::optim
