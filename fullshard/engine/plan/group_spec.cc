// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/group_spec.h"

#include <algorithm>

namespace fullshard::engine {
namespace {

constexpr int64_t kAlignBytes = 16;

}  // namespace

// Aligned for the narrowest dtype that the group's elements are kept in.
Layout layout_of(const GroupSpec& spec, int num_shards) {
  std::vector<TensorSpec> tensors;
  for (const auto& parameter : spec.parameters) {
    tensors.push_back({parameter.names.front(), parameter.tensor.sizes().vec()});
  }
  const int64_t narrowest =
      std::min({element_bytes(spec.compute_dtype), element_bytes(spec.master_dtype),
                element_bytes(spec.reduce_dtype), element_bytes(spec.gradient_dtype)});
  return Layout(tensors, num_shards, std::max<int64_t>(kAlignBytes / narrowest, 1));
}

}  // namespace fullshard::engine
