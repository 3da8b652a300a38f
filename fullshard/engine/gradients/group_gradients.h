// SPDX-License-Identifier: Apache-2.0
// The gradients of one group: collected slot by slot as backward makes them, reduced once over the
// mesh, kept as this rank's shard until the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/engine/gradients/away_gradients.h"
#include "fullshard/engine/gradients/grad_norm_kernels.h"
#include "fullshard/engine/gradients/slot_gradients.h"
#include "fullshard/engine/gradients/used_gradients.h"
#include "fullshard/engine/plan/group_context.h"
#include "fullshard/engine/plan/layout.h"
#include "fullshard/engine/plan/sharding.h"
#include "fullshard/engine/plan/traffic.h"
#include "fullshard/memory/pool.h"
#include "fullshard/nn/gradient_hook.h"

namespace fullshard::engine {

class GroupGradients {
 public:
  struct Dtypes {
    at::ScalarType reduce;  // of what is collected and sent
    at::ScalarType shard;   // of what is kept
  };

  // `tier`: where they wait for their update.
  GroupGradients(const GroupContext& context, const Layout& layout, Placement placement,
                 Dtypes dtypes, std::string unit, tiers::Tier tier = tiers::Tier::device);

  // Takes a gradient over; several for one slot before a reduction are added.
  void receive(int slot, const at::Tensor& gradient);
  // What a slot has received and no reduction has taken; undefined when nothing.
  at::Tensor received(int slot) const;
  // The slot itself, for an operator that writes its gradient there: undefined when gradients are
  // kept elsewhere. `accumulate` when the slot holds one already. Counts as received.
  nn::GradientSink open_slot(int slot);
  // Takes the tensor itself as the slot's first gradient; false: copy it into the opened slot.
  bool take_whole(int slot, const at::Tensor& gradient);
  // Something was received that no reduction has taken yet.
  bool has_unreduced() const { return num_unreduced_ > 0; }

  // Issues the reduction; slots that received nothing count as zero. Adds to earlier reductions.
  void begin_reduce();
  void finish_reduce();
  void advance_reduce();  // without waiting
  // A buffer that stays may collect late gradients, which a second stage would not tell apart.
  bool reduces_in_stages() const { return context_.traffic->reduces_in_stages() && !in_place_; }
  // Where replicas are added in a stage of their own, that follows, issued and waited for; else
  // these do nothing. Gradients may arrive meanwhile.
  void begin_replica_sum();
  void finish_replica_sum();

  // Forgets everything: after the step, or after a failed backward.
  void drop();
  void drop_unreduced();

  // Whether a device can be given the work of a backward once, to run it again and again: on a
  // single rank, with gradients that wait on the device in slots of their own.
  bool can_stay() const { return slots_.has_value() && !away_; }
  // Slots keep their memory from here on; only when they can.
  void keep_memory() { slots_->keep_memory(); }
  // Where they lie, in an order that does not change.
  std::vector<at::Tensor> memory() const { return slots_->memory(); }
  // Such work has run, as a backward with its reduction would have; or what they held before stands
  // again, after a backward that the device was never given.
  void mark_reduced();

  // An update beside the caller reads what was reduced, from here to end_use(): what is dropped
  // meanwhile keeps its memory, and its place in the ledger.
  void begin_use() { is_in_use_ = true; }
  void end_use();

  // What lies on the device moves, reduced or not; nothing is under way.
  void relocate(const memory::Relocation& relocation);

  bool is_reduced() const { return is_reduced_; }
  // Null where they wait on the device.
  const AwayGradients* away() const { return away_ ? &*away_ : nullptr; }
  // Makes them lie on the device.
  void come_back();
  // This rank's part of the mean gradient, 1-D, in the place of `piece`; only when is_reduced().
  at::Tensor of_piece(const Piece& piece) const;
  // Its sum of squares in fp64; taken during the reduction where that was possible.
  double squares_of_piece(size_t index) const;
  // Somebody may change the gradients: what is known of them is forgotten.
  void forget_squares();

 private:
  void go_away();
  bool parks() const;
  void park(int slot, const at::Tensor& gradient);
  void unpark();
  void keep_parked();
  void forget(std::vector<at::Tensor>& gradients);
  void drop_slots();
  void take_squares(int64_t begin, int64_t end);
  at::Tensor shard() const;
  void open_buffer();
  bool collects_wide() const;
  void narrow();
  void keep_own();
  void begin_whole_reduce();
  void begin_shard_sum();
  void take_mean();
  at::Tensor sums() const;
  at::Tensor collecting() const;
  void zero_padding();
  void zero_missing();
  void set_aside_own_slice();
  at::Tensor full() const;
  at::Tensor own_slice() const;
  at::Tensor slot_view(int slot) const;
  at::Tensor zeros_of(int64_t numel) const;

  const GroupContext& context_;
  const Layout& layout_;
  Dtypes dtypes_;
  std::string unit_;
  std::vector<Piece> pieces_;  // of this rank
  bool in_place_;              // the shard is the own slice of the full buffer, which then stays
  bool single_rank_;           // one rank: gradients stay where operators write them, or
  std::optional<SlotGradients> slots_;  // absent: where autograd left them
  std::optional<AwayGradients> away_;   // absent: they stay on the device

  memory::Block full_;
  memory::Block wide_;  // in its place while backwards add up in fp32 what is sent in 16 bits
  memory::Block shard_;
  memory::Block sums_;     // between the stages of a reduction, where the shard cannot hold them
  memory::Block carried_;  // the own slice of an earlier reduction while the buffer collects again
  std::vector<at::Tensor> parked_;  // received, not yet reduced, outside the full buffer
  std::vector<at::Tensor> kept_;    // alone: what a reduction would have given
  std::vector<bool> received_;
  int num_unreduced_ = 0;
  bool is_reduced_ = false;
  bool is_reducing_ = false;
  bool lacks_replicas_ = false;  // summed over the shards axis only
  bool is_in_use_ = false;
  UsedGradients used_;
  Works works_;
  std::vector<SquareSum> squares_;  // by piece
  int64_t squared_numel_ = 0;       // of the shard, from its beginning
};

}  // namespace fullshard::engine
