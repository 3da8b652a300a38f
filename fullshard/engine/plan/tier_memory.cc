// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/tier_memory.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/memory/host_memory.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::engine {
namespace {

std::shared_ptr<memory::Pool> pool_of(memory::Pool::Source source, memory::Pool& like,
                                      tiers::Tier tier) {
  return std::make_shared<memory::Pool>(std::move(source), like.shared_ledger(), tier,
                                        memory::Returned::freed);
}

memory::PinMemory pinning_of(const tiers::TierOptions& options, at::Device device) {
  const bool pins = options.optimizer.pin_memory && options.parameters.pin_memory;
  if (!pins) return {};
  return options.pin ? memory::PinMemory{.pin = options.pin, .unpin = [](void*) {}}
                     : memory::pin_memory_for(device);
}

// Every buffer of a ring has a read or a write under way, and so has a unit that is fetched.
constexpr int kTickets = 1024;

// Of the gradients of a few blocks; the newest may be larger.
constexpr int64_t kMostLeaving = 512 * kMiB;

tiers::FileSpace space_for(const tiers::OffloadPlace& place) {
  if (tensor::is_pretended()) return tiers::FileSpace::planned;
  return place.reads_in_place ? tiers::FileSpace::sparse : tiers::FileSpace::reserved;
}

std::shared_ptr<memory::DiskMemory> disk_in(const tiers::OffloadPlace& place, int rank,
                                            const tiers::TierOptions& options) {
  if (place.tier != tiers::Tier::disk) return nullptr;
  return std::make_shared<memory::DiskMemory>(
      tiers::SlotFileOptions{.folder = place.folder,
                             .disk = options.disk,
                             .num_tickets = kTickets,
                             .owner = fmt::format("rank {}", rank),
                             .make_transfers = options.make_transfers,
                             .space = space_for(place),
                             .on_planned =
                                 [](int64_t number, int64_t bytes, bool is_write) {
                                   if (const auto watch = tensor::OperatorWatch::current()) {
                                     watch->moved_on_disk(number, bytes, is_write);
                                   }
                                 },
                             .on_planned_wait =
                                 [](int64_t number) {
                                   if (const auto watch = tensor::OperatorWatch::current())
                                     watch->waited_for_disk(number);
                                 }});
}

}  // namespace

TierMemory::TierMemory(std::shared_ptr<memory::Pool> device_pool, at::Device device, int rank,
                       const tiers::TierOptions& options)
    : TierMemory(std::move(device_pool), device, rank, options,
                 memory::host_memory_source(pinning_of(options, device))) {}

// One source for all that is pinned: it warns once.
TierMemory::TierMemory(std::shared_ptr<memory::Pool> device_pool, at::Device device, int rank,
                       const tiers::TierOptions& options, const memory::Pool::Source& pinned)
    : device_(device),
      parameter_buffer_count_(options.parameters.buffer_count),
      parameter_buffer_numel_(options.buffer_size),
      device_pool_(std::move(device_pool)),
      host_(pool_of(pinned, *device_pool_, tiers::Tier::host)),
      pageable_(pool_of(memory::host_memory_source({}), *device_pool_, tiers::Tier::host)),
      staging_(std::make_shared<memory::Pool>(pinned, device_pool_->shared_ledger(),
                                              tiers::Tier::host, memory::Returned::kept)),
      parameter_disk_(disk_in(options.parameters, rank, options)),
      state_disk_(disk_in(options.optimizer, rank, options)),
      fetches_(std::make_unique<memory::Lane>(device)),
      departures_(std::make_unique<memory::Lane>(device)),
      leaving_(std::make_unique<memory::Leaving>(kMostLeaving)) {
  // One file for both where they go to one folder.
  const bool is_one =
      parameter_disk_ && state_disk_ && options.parameters.folder == options.optimizer.folder;
  if (is_one) state_disk_ = parameter_disk_;
  const auto pool_on = [this](const std::shared_ptr<memory::DiskMemory>& disk) {
    return disk ? pool_of(memory::disk_memory_source(disk), *device_pool_, tiers::Tier::disk)
                : nullptr;
  };
  parameter_disk_pool_ = pool_on(parameter_disk_);
  state_disk_pool_ = is_one ? parameter_disk_pool_ : pool_on(state_disk_);
}

void TierMemory::finish_copies() const noexcept {
  if (device_.is_cpu()) return;
  for (const auto* lane : {fetches_.get(), departures_.get()}) {
    try {
      lane->mark().wait();
    } catch (const std::exception&) {
      // The device is lost, and nothing copies any more.
    }
  }
}

void TierMemory::drain() const {
  if (parameter_disk_) parameter_disk_->file().drain();
  if (state_disk_ && state_disk_ != parameter_disk_) state_disk_->file().drain();
}

const std::shared_ptr<memory::Pool>& TierMemory::parameters(tiers::Tier tier) const {
  if (tier == tiers::Tier::device) return device_pool_;
  return tier == tiers::Tier::host ? host_ : parameter_disk_pool_;
}

const std::shared_ptr<memory::Pool>& TierMemory::states(tiers::Tier tier) const {
  if (tier == tiers::Tier::device) return device_pool_;
  return tier == tiers::Tier::host ? host_ : state_disk_pool_;
}

}  // namespace fullshard::engine
