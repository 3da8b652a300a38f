// SPDX-License-Identifier: Apache-2.0
// This rank's shard of one group in the optimizer's precision: the values that count, of which
// everything that computation sees is made.
//
// The seam for where these bytes rest. Groups and full storages know this interface only; a master
// that rests elsewhere (pinned host memory, a file) differs by the pools that it was given:
//
//   out   values: to be read; to_send: for a gather; show: into a full buffer that rests
//   in    make_whole … rest: somebody writes; take_written: a write scope did; finish_update: an
//         optimizer did
//
// What is handed out lies where it rests, which parts() tells. A call may wait for this rank's own
// copies, never for other ranks. Owned by its group; one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fullshard/memory/pool.h"
#include "fullshard/memory/relocation.h"

namespace fullshard::engine {

// Where a master may lie. `resting` is this rank's slice of a full buffer that rests, in the
// compute dtype; undefined: there is none.
struct MasterPlace {
  // Of what computation sees, where that is no resting slice; of what only updates need (lower
  // halves, or all of a master that is cast); and of masters that are whole for a while only.
  std::shared_ptr<memory::Pool> parameter_pool;
  std::shared_ptr<memory::Pool> state_pool;
  std::shared_ptr<memory::Pool> scratch_pool;
  tiers::Purpose purpose = tiers::Purpose::master;
  int64_t numel = 0;
  at::ScalarType dtype = at::kFloat;
  at::ScalarType compute_dtype = at::kFloat;
  at::Tensor resting{};

  memory::Block take_from(memory::Pool& pool) const;  // memory for all of it
};

// Something that an update reads and writes, all of the shard, and where it rests.
struct MasterPart {
  enum class Kind { whole, nearest, lower };
  Kind kind = Kind::whole;
  at::Tensor values{};
  tiers::Tier tier = tiers::Tier::device;
};

class Master {
 public:
  virtual ~Master() = default;

  // Elements [first, first + numel), 1-D: a view of them, or a copy while the master is not whole.
  virtual at::Tensor values(int64_t first, int64_t numel) const = 0;
  // The same in the compute dtype, where they rest; undefined when that is the master itself, or
  // nowhere.
  virtual at::Tensor shown(int64_t first, int64_t numel) const = 0;
  // Of masters in halves, whose other half is `shown`; undefined while the master is whole.
  virtual at::Tensor lower_half(int64_t first, int64_t numel) const = 0;
  virtual bool is_in_halves() const = 0;
  virtual std::vector<MasterPart> parts() const = 0;
  // What is written into the resting slice is written into the master.
  virtual bool is_resting_slice() const = 0;

  // Memory that others may write, from here to rest(). A new master is whole.
  virtual void make_whole() = 0;
  virtual void rest() = 0;
  // A master of these values that is whole for good, to take this one's place; null: this one is.
  virtual std::unique_ptr<Master> kept_whole() = 0;

  // Writes what computation sees of `values`, which have the master's dtype.
  virtual void write_seen(const at::Tensor& target, const at::Tensor& values) const = 0;
  // The whole shard as computation sees it: as it rests where that has the dtype; else written into
  // `place`, and that tensor itself is returned.
  virtual at::Tensor to_send(const at::Tensor& place) const = 0;
  // Casts the values into the resting slice, where that is memory apart.
  virtual void show() = 0;

  // The elements that a write scope left, in the compute dtype; the master is whole. It is more
  // precise than what was seen of it, and stays where nobody wrote anything else.
  virtual void take_written(const at::Tensor& written) = 0;
  // Its memory moves, while it rests; so has `resting` of its place, which is what was given.
  virtual void relocate(const memory::Relocation& relocation, const at::Tensor& resting) = 0;
  // After an update; `is_shown`: the update has written the resting slice too.
  virtual void finish_update(bool is_shown) = 0;
};

// In halves, or plain.
std::unique_ptr<Master> make_master(MasterPlace place, bool in_halves);

// `master` where `written` equals what was `seen` of it, else `written`.
void keep_untouched(const at::Tensor& master, const at::Tensor& seen, const at::Tensor& written);

}  // namespace fullshard::engine
