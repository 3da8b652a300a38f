// SPDX-License-Identifier: Apache-2.0
// One collective of one rank, from its issue until no peer needs its memory any more. Nothing runs
// by itself: advance() does what has become possible, on the thread that calls it.
//
//   issued ── all peers have issued: read their memory ──> draining ── all have read ──> retired
//      └────── (fewer slices than ranks) ──> spreading ─────^
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/shm/shm_arena.h"
#include "fullshard/comm/shm/shm_group.h"
#include "fullshard/comm/shm/shm_watch.h"

namespace fullshard::comm {

// Rows of bytes in some memory.
struct ByteRows {
  std::byte* begin = nullptr;
  int64_t num_rows = 1;
  int64_t row_bytes = 0;
  int64_t row_stride = 0;

  static ByteRows of(const at::Tensor& rows);  // 1-D or 2-D with contiguous rows
  std::byte* row(int64_t index) const { return begin + index * row_stride; }
  int64_t bytes() const { return num_rows * row_bytes; }
};

class ShmCall {
 public:
  ShmCall(std::shared_ptr<const ShmGroup> group, std::shared_ptr<ShmArena> arena, ShmWatch& watch,
          const Call& call);
  virtual ~ShmCall() = default;

  // Publishes this rank's part under the group's next ticket.
  void issue(uint64_t ticket);
  // True when it did something. Throws when the ranks disagree.
  bool advance();

  // How far a call can be waited for. result: the output is there. complete: and the caller may
  // touch its buffers again. retired: and no peer will look at the call's slot any more.
  enum class Stage { result, complete, retired };
  bool has_reached(Stage stage) const;

  bool is_awaited(int domain_rank) const;  // whether the next step needs that rank
  std::vector<int> awaited() const;        // all of those
  Act act() const {
    return {name_of(operation_), unit_,  group_->name(),
            terms_.sequence,     limit_, larger_.has_value()};
  }

 protected:
  // Fills in the terms and exposes the buffers.
  virtual void prepare() = 0;
  virtual void read_peers() = 0;
  // The second step, for the result of which `needs` names the ranks.
  virtual bool spreads() const { return false; }
  virtual bool needs(int /*rank*/) const { return false; }
  virtual void spread() {}
  // Drops the caller's buffers.
  virtual void forget() {}

  // Makes rows readable by the peers: where they are if that is shared memory, else as a copy.
  Place expose(const ByteRows& rows);
  bool is_inline(int64_t bytes) const { return bytes <= kInlineBytes; }
  std::byte* stage(int64_t bytes);
  Place place_of(const std::byte* begin, int64_t bytes) const;
  ByteRows input_of(int rank) const;  // of a peer that has issued
  std::byte* output_of(int rank) const;
  bool is_output_whole(int rank) const { return slot(rank).output_is_whole != 0; }

  const ShmGroup& group() const { return *group_; }
  ShmArena& arena() const { return *arena_; }
  CallSlot& slot(int rank) const { return group_->slot(rank, ticket_); }

  CallTerms terms_;
  Place input_;
  Place output_;
  bool output_is_whole_ = false;    // peers may write their parts of it
  bool peers_read_caller_ = false;  // then the caller has to wait until they have

 private:
  enum class Phase { issued, spreading, draining, retired };

  bool is_behind(int rank) const;  // whether the next step lacks that rank of the group
  bool all_issued();
  void check_agreement(int rank) const;
  void publish_drained();

  std::shared_ptr<const ShmGroup> group_;
  std::shared_ptr<ShmArena> arena_;
  ShmWatch& watch_;
  Operation operation_;
  std::string unit_;
  TimeLimit limit_;
  std::optional<CallTerms> larger_;  // of the call that this one is a part of
  uint64_t ticket_ = 0;
  Phase phase_ = Phase::issued;
  int agreed_ = 0;  // ranks below it have issued the same call
  std::vector<ShmArena::Block> staged_;
};

}  // namespace fullshard::comm
