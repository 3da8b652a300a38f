// SPDX-License-Identifier: Apache-2.0
// Full parameters that exist only while their unit is used: a block of the pool, filled by an
// all-gather of the ranks' shards (FSDP's flat buffer). A shard that rests in host memory is copied
// into its slice first, on a lane of its own; one that rests on a disk is read when the gather
// begins, and goes on from there when it is waited for.
#pragma once

#include "fullshard/engine/plan/traffic.h"
#include "fullshard/engine/storage/disk_fetch.h"
#include "fullshard/engine/storage/full_storage.h"

namespace fullshard::engine {

class GatheredStorage : public FullStorage {
 public:
  // `tier`: where the masters that are sent rest.
  GatheredStorage(const GroupContext& context, const Layout& layout, at::ScalarType dtype,
                  std::string owner, tiers::Tier tier);

  bool is_released_at_rest() const override { return true; }
  at::Tensor full() const override { return full_.as(numel(), dtype_); }
  at::Tensor resting_slice() const override { return {}; }

  void fill(Master& master, const InitialValues& values) override;

  void begin_gather(const Master& master, const memory::LaneMark& stored) override;
  void finish_gather() override;
  void release() override;

  // What was gathered goes with the scope.
  void take_written(Master& master) override { master.take_written(own_slice(full())); }

 private:
  void gather(const at::Tensor& sent);
  void fetch(const at::Tensor& resting);
  void gather_fetched();

  tiers::Tier tier_;
  memory::Block full_;
  Works gather_;
  memory::LaneMark fetched_;
  DiskFetch from_disk_;
};

}  // namespace fullshard::engine
