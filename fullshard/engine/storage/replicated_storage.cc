// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/replicated_storage.h"

#include <utility>

namespace fullshard::engine {

ReplicatedStorage::ReplicatedStorage(const GroupContext& context, const Layout& layout,
                                     at::ScalarType dtype, std::string owner)
    : FullStorage(context, layout, dtype, std::move(owner)),
      full_(context.pool->take(bytes(), tiers::Purpose::parameters)) {}

void ReplicatedStorage::fill(Master& master, const InitialValues& values) {
  values.write_full(lasting());
  if (!master.is_resting_slice()) values.write_own(master.values(0, layout_.shard_numel()));
}

void ReplicatedStorage::take_written(Master& master) {
  if (!master.is_resting_slice()) master.take_written(own_slice(full()));
  lasting().copy_(full());
}

void ReplicatedStorage::begin_publish() {
  if (layout_.num_shards() == 1) return;
  gather_ = context_.traffic->gather(lasting(), resting_slice(), owner_);
}

}  // namespace fullshard::engine
