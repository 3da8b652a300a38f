// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/host_copy_storage.h"

#include <utility>

namespace fullshard::engine {

HostCopyStorage::HostCopyStorage(const GroupContext& context, const Layout& layout,
                                 at::ScalarType dtype, std::string owner, tiers::Purpose purpose)
    : FullStorage(context, layout, dtype, std::move(owner)),
      common_(context.mesh->shards().allocate_common(numel(), dtype)) {
  // A rank answers for its own slice; the host holds the whole once.
  context.pool->ledger().hold(purpose, tiers::Tier::device, bytes() / layout.num_shards());
}

void HostCopyStorage::fill(Master& master, const InitialValues& values) {
  values.write_own(master.values(0, layout_.shard_numel()));
  master.show();
}

void HostCopyStorage::begin_gather(const Master&, const memory::LaneMark&) {
  Record record;
  record.operation = Operation::share;
  record.group = context_.mesh->shards().group();
  record.unit = owner_;
  record.bytes = bytes();
  ticket_ = context_.mesh->shards().recorder().issue(record);
}

void HostCopyStorage::finish_gather() {
  if (seen_version_ != version_) {
    counters_->wait_for_all(slot_, version_, "the shared parameters", owner_);
    seen_version_ = version_;
  }
  context_.mesh->shards().recorder().finish(ticket_, 0);
}

// Nobody may look at the common copy before every owner has written its slice.
void HostCopyStorage::take_written(Master& master) {
  master.take_written(own_slice(full()));
  master.show();
  context_.mesh->everyone().barrier(owner_);
}

void HostCopyStorage::begin_publish() {
  ++version_;
  if (counters_) counters_->publish(slot_, version_);
}

void HostCopyStorage::use_counters(std::shared_ptr<SharedCounters> counters, int slot) {
  counters_ = std::move(counters);
  slot_ = slot;
  counters_->publish(slot_, version_);
}

}  // namespace fullshard::engine
