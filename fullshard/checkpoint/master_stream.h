// SPDX-License-Identifier: Apache-2.0
// The optimizer's values of a group on their way to one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "fullshard/engine/engine.h"

namespace fullshard::checkpoint {

// Elements [begin, begin + values.numel()) of a slot; `values` is 1-D and valid during the call.
using ShowRange = std::function<void(int slot, int64_t begin, const at::Tensor& values)>;

// Collective. Shows rank 0 every element of the group's masters once, range by range; the other
// ranks only take part, and wait for it however long it takes. Beside the shards at most 4 MiB (or
// one element of each) is held. `show` must not throw: the others would wait for the next range.
void stream_masters(const engine::Engine& engine, const engine::ParamGroup& group,
                    const ShowRange& show);

}  // namespace fullshard::checkpoint
