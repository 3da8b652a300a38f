// SPDX-License-Identifier: Apache-2.0
// Where the full parameters of one group lie, and how they get there. Three ways:
//
//   ReplicatedStorage  kept whole on every rank; an update is gathered into it
//   GatheredStorage    memory only while the unit is used, filled by an all-gather
//   HostCopyStorage    one copy that the ranks of a host look at; a gather is a wait for owners
//
// The seam for tiers of parameters: another place for full parameters is another implementation
// here, another place for the shard that they are made of is another Master. Nobody else asks
// which it is. Owned by its group; one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fullshard/comm/communicator.h"
#include "fullshard/engine/plan/group_context.h"
#include "fullshard/engine/plan/group_spec.h"
#include "fullshard/engine/plan/layout.h"
#include "fullshard/engine/storage/master.h"
#include "fullshard/memory/lane.h"
#include "fullshard/memory/relocation.h"

namespace fullshard::engine {

// The values that a model starts with, for whoever has the place for them.
struct InitialValues {
  std::function<void(const at::Tensor& full)> write_full;  // as computation sees them
  std::function<void(const at::Tensor& shard)> write_own;  // this rank's master, whole
};

class FullStorage {
 public:
  // `layout` and `context` outlive it; `owner` names the unit for messages.
  FullStorage(const GroupContext& context, const Layout& layout, at::ScalarType dtype,
              std::string owner);
  virtual ~FullStorage() = default;
  FullStorage(const FullStorage&) = delete;
  FullStorage& operator=(const FullStorage&) = delete;

  // Parameters have memory only from finish_gather to release; else always.
  virtual bool is_released_at_rest() const = 0;
  // What parameters look at while they have memory, 1-D; inside a write scope, what it writes.
  virtual at::Tensor full() const = 0;
  // This rank's slice of a full buffer that rests, without a write scope's changes; undefined when
  // none rests.
  virtual at::Tensor resting_slice() const = 0;

  // Once, at the start: writes the master, and what rests of the full parameters.
  virtual void fill(Master& master, const InitialValues& values) = 0;

  // Makes the full parameters of the masters of all ranks: issued, then waited for. Called where
  // parameters have no memory only. `stored`: where a master rests elsewhere, its last update is
  // there.
  virtual void begin_gather(const Master&, const memory::LaneMark& /*stored*/) {}
  virtual void finish_gather() {}
  virtual void release() {}

  // A scope in which full() may be written. take_written, collective where ranks share memory,
  // brings what was written, the same on every rank by then, into the master and into what rests;
  // end_write drops what only the scope needed, and may be called at any time.
  virtual void begin_write() {}
  virtual void take_written(Master& master) = 0;
  virtual void end_write() {}

  // After the master has finished an update: makes it visible to the other ranks. Where that hands
  // the new values out at once, an update must be complete before.
  virtual bool publishes_values() const { return false; }
  virtual void begin_publish() {}
  virtual void finish_publish() {}
  // What rests on the device moves, where that is memory of this rank's own; nothing is gathered.
  virtual void relocate(const memory::Relocation&) {}
  // Marks of "updated" for ranks that share memory; slot of this group in them.
  virtual void use_counters(std::shared_ptr<SharedCounters>, int) {}

 protected:
  int64_t numel() const { return layout_.numel(); }
  int64_t bytes() const;
  at::Tensor own_slice(const at::Tensor& full) const;

  const GroupContext& context_;
  const Layout& layout_;
  at::ScalarType dtype_;
  std::string owner_;
};

enum class FullPlacement { replicated, gathered, host_copy };
FullPlacement full_placement(const GroupContext& context, const GroupSpec& spec);

std::unique_ptr<FullStorage> make_full_storage(const GroupContext& context, const GroupSpec& spec,
                                               const Layout& layout, std::string owner);

}  // namespace fullshard::engine
