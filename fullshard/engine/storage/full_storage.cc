// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/full_storage.h"

#include <c10/core/ScalarType.h>

#include <utility>

#include "fullshard/engine/storage/gathered_storage.h"
#include "fullshard/engine/storage/host_copy_storage.h"
#include "fullshard/engine/storage/replicated_storage.h"

namespace fullshard::engine {

FullStorage::FullStorage(const GroupContext& context, const Layout& layout, at::ScalarType dtype,
                         std::string owner)
    : context_(context), layout_(layout), dtype_(dtype), owner_(std::move(owner)) {}

int64_t FullStorage::bytes() const {
  return numel() * static_cast<int64_t>(c10::elementSize(dtype_));
}

at::Tensor FullStorage::own_slice(const at::Tensor& full) const {
  return full.narrow(0, context_.mesh->shard() * layout_.shard_numel(), layout_.shard_numel());
}

FullPlacement full_placement(const GroupContext& context, const GroupSpec& spec) {
  if (spec.residence.parameters != tiers::Tier::device) return FullPlacement::gathered;
  const bool is_whole =
      context.mesh->num_shards() == 1 || spec.sharding.parameters == Placement::replicated;
  if (is_whole) return FullPlacement::replicated;
  return context.one_copy ? FullPlacement::host_copy : FullPlacement::gathered;
}

std::unique_ptr<FullStorage> make_full_storage(const GroupContext& context, const GroupSpec& spec,
                                               const Layout& layout, std::string owner) {
  const auto dtype = spec.compute_dtype;
  switch (full_placement(context, spec)) {
    case FullPlacement::replicated:
      return std::make_unique<ReplicatedStorage>(context, layout, dtype, std::move(owner));
    case FullPlacement::gathered:
      return std::make_unique<GatheredStorage>(context, layout, dtype, std::move(owner),
                                               spec.residence.parameters);
    case FullPlacement::host_copy:
      break;
  }
  // A slice that is also the master counts as such.
  const bool is_master = spec.trainable && spec.compute_dtype == spec.master_dtype;
  return std::make_unique<HostCopyStorage>(
      context, layout, dtype, std::move(owner),
      is_master ? tiers::Purpose::master : tiers::Purpose::parameters);
}

}  // namespace fullshard::engine
