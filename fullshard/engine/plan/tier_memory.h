// SPDX-License-Identifier: Apache-2.0
// The memory of every tier, and what brings parameters from there to the device.
#pragma once

#include <memory>

#include "fullshard/memory/disk_memory.h"
#include "fullshard/memory/lane.h"
#include "fullshard/memory/leaving.h"
#include "fullshard/memory/pool.h"
#include "fullshard/memory/wait_times.h"
#include "fullshard/tiers/tier_options.h"

namespace fullshard::engine {

// Owned by the engine; groups and optimizers take from it. One thread at a time.
class TierMemory {
 public:
  // Files are made with the first byte that is to rest in them; `rank` names them in messages.
  TierMemory(std::shared_ptr<memory::Pool> device_pool, at::Device device, int rank,
             const tiers::TierOptions& options);

  at::Device device() const { return device_; }
  const std::shared_ptr<memory::Pool>& parameters(tiers::Tier tier) const;
  const std::shared_ptr<memory::Pool>& states(tiers::Tier tier) const;
  const std::shared_ptr<memory::Pool>& host() const { return host_; }  // pinned beside a GPU
  // For what is on the host for a while only, and need not be pinned.
  const std::shared_ptr<memory::Pool>& pageable() const { return pageable_; }

  // Pinned as well, and kept for the next taker: what comes from a disk lands there.
  const std::shared_ptr<memory::Pool>& staging() const { return staging_; }

  int64_t parameter_buffer_count() const { return parameter_buffer_count_; }
  int64_t parameter_buffer_numel() const { return parameter_buffer_numel_; }

  // Null where nothing of the kind rests on a disk.
  memory::DiskMemory* disk_of_parameters() const { return parameter_disk_.get(); }
  memory::DiskMemory* disk_of_states() const { return state_disk_.get(); }

  // Waits until disks have written what they were given: mapped tensors may be read.
  void drain() const;

  // Waits until a device has made the copies that it was given: memory of the host that they read
  // or write may go. Whoever meets an error there has been told of it already.
  void finish_copies() const noexcept;

  // Copies of parameters to the device, and of gradients from it.
  memory::Lane& fetches() const { return *fetches_; }
  memory::Lane& departures() const { return *departures_; }
  // For updates of what rests elsewhere, and for parameters: what the caller's stream waited.
  memory::WaitTimes& update_waits() const { return *update_waits_; }
  memory::WaitTimes& fetch_waits() const { return *fetch_waits_; }
  // What gradients leave behind on the device.
  memory::Leaving& leaving() const { return *leaving_; }

 private:
  TierMemory(std::shared_ptr<memory::Pool> device_pool, at::Device device, int rank,
             const tiers::TierOptions& options, const memory::Pool::Source& pinned);

  at::Device device_;
  int64_t parameter_buffer_count_, parameter_buffer_numel_;
  std::shared_ptr<memory::Pool> device_pool_, host_, pageable_, staging_;
  std::shared_ptr<memory::DiskMemory> parameter_disk_, state_disk_;
  std::shared_ptr<memory::Pool> parameter_disk_pool_, state_disk_pool_;
  std::unique_ptr<memory::Lane> fetches_, departures_;
  std::unique_ptr<memory::Leaving> leaving_;
  std::unique_ptr<memory::WaitTimes> update_waits_ = std::make_unique<memory::WaitTimes>();
  std::unique_ptr<memory::WaitTimes> fetch_waits_ = std::make_unique<memory::WaitTimes>();
};

}  // namespace fullshard::engine
