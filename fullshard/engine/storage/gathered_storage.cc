// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/gathered_storage.h"

#include <ATen/core/grad_mode.h>

namespace fullshard::engine {

void GatheredStorage::fill(Master& master, const InitialValues& values) {
  values.write_own(master.values(0, layout_.shard_numel()));
}

void GatheredStorage::begin_gather(const Master& master) {
  at::NoGradGuard no_grad;
  full_ = context_.pool->take(bytes(), tiers::Purpose::parameters);
  const auto own = own_slice(full());
  const auto sent = master.to_send(own);
  if (sent.is_same(own))
    context_.counters->copied_for_gathers += static_cast<int64_t>(own.nbytes());
  gather_ = context_.traffic->gather(full(), sent, owner_);
}

}  // namespace fullshard::engine
