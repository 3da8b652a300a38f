// SPDX-License-Identifier: Apache-2.0
// Full parameters in one shared segment that the ranks of a host look at (docs/architecture.md,
// "One host, one copy"): each rank owns its slice, and a gather only waits until every owner has
// published the newest version.
#pragma once

#include "fullshard/engine/storage/full_storage.h"
#include "fullshard/engine/storage/private_copy.h"

namespace fullshard::engine {

class HostCopyStorage : public FullStorage {
 public:
  // Collective over the shards axis. The ledger counts this rank's slice under `purpose`.
  HostCopyStorage(const GroupContext& context, const Layout& layout, at::ScalarType dtype,
                  std::string owner, tiers::Purpose purpose);

  bool is_released_at_rest() const override { return true; }
  at::Tensor full() const override { return written_.in_place_of(common_); }
  at::Tensor resting_slice() const override { return own_slice(common_); }

  void fill(Master& master, const InitialValues& values) override;

  void begin_gather(const Master& master, const memory::LaneMark& stored) override;
  void finish_gather() override;

  void begin_write() override { written_.open(*context_.pool, common_); }
  void take_written(Master& master) override;
  void end_write() override { written_.close(); }

  bool publishes_values() const override { return true; }
  void begin_publish() override;
  void use_counters(std::shared_ptr<SharedCounters> counters, int slot) override;

 private:
  at::Tensor common_;
  PrivateCopy written_;
  uint64_t ticket_ = 0;  // of the gather in flight
  std::shared_ptr<SharedCounters> counters_;
  int slot_ = 0;
  uint64_t version_ = 1;       // of the values: rises with every update
  uint64_t seen_version_ = 0;  // every owner is known to have reached it
};

}  // namespace fullshard::engine
