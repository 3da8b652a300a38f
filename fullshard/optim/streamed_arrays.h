// SPDX-License-Identifier: Apache-2.0
// What of a group's update rests outside the device: states, and parts of the master. Plain data.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fullshard/engine/passes/param_group.h"
#include "fullshard/tiers/tier.h"

namespace fullshard::optim {

struct StreamedArray {
  enum class Role { state, master, shown, lower, gradient };

  Role role = Role::state;
  int state = 0;         // which of them, for a state
  at::Tensor resting{};  // 1-D, as long as the shard
  tiers::Tier tier = tiers::Tier::host;

  bool is_written() const { return role != Role::gradient; }
};

struct StreamedGroup {
  std::vector<StreamedArray> arrays{};
  int64_t numel = 0;        // of the shard
  int64_t chunk_numel = 0;  // that pass through a window at a time

  bool is_any() const { return !arrays.empty() && numel > 0; }
  int64_t element_bytes() const;
  bool has(tiers::Tier tier) const;
};

// Elements that chunks begin at multiples of: arrays in windows are aligned as those they come
// from; what comes from a disk begins at multiples of 4 KiB of its slot.
inline constexpr int64_t kChunkAlign = 16;
inline constexpr int64_t kDiskChunkAlign = 4096;

// All that an update reads and writes beside gradients, wherever it rests.
std::vector<at::Tensor> resting_arrays(const engine::ParamGroup& group,
                                       const std::vector<at::Tensor>& states);

// `states` as the optimizer keeps them, one tensor for each, as long as the shard. A chunk has at
// most `window_bytes` of these arrays and `most_numel` elements (0: any number).
StreamedGroup streamed_group(const engine::ParamGroup& group, const std::vector<at::Tensor>& states,
                             int64_t window_bytes, int64_t most_numel);

}  // namespace fullshard::optim
