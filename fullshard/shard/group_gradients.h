// The gradients of one group: collected slot by slot as backward makes them, reduced once over the
// mesh, kept as this rank's shard until the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "fullshard/memory/pool.h"
#include "fullshard/nn/gradient_hook.h"
#include "fullshard/shard/counters.h"
#include "fullshard/shard/layout.h"
#include "fullshard/shard/sharding.h"
#include "fullshard/shard/traffic.h"

namespace fullshard {

// What the groups of one model have in common; outlives them.
struct GroupContext {
  const Mesh* mesh = nullptr;
  const Traffic* traffic = nullptr;
  std::shared_ptr<Pool> pool;
  ShardCounters* counters = nullptr;
  bool one_copy = false;  // ranks of a host share the gathered parameters
  bool contiguous_gradients = true;
};

class GroupGradients {
 public:
  struct Dtypes {
    at::ScalarType reduce;  // of what is collected and sent
    at::ScalarType shard;   // of what is kept
  };

  GroupGradients(const GroupContext& context, const Layout& layout, Placement placement,
                 Dtypes dtypes, std::string unit);

  // Takes a gradient over; several for one slot before a reduction are added.
  void receive(int slot, const at::Tensor& gradient);
  // The slot itself, for an operator that writes its gradient there: undefined when gradients are
  // kept elsewhere. `accumulate` when the slot holds one already. Counts as received.
  GradientSink open_slot(int slot);
  // Something was received that no reduction has taken yet.
  bool has_unreduced() const { return num_unreduced_ > 0; }

  // Issues the reduction; slots that received nothing count as zero. Adds to earlier reductions.
  void begin_reduce();
  void finish_reduce();

  // Forgets everything: after the step, or after a failed backward.
  void drop();
  void drop_unreduced();

  bool is_reduced() const { return is_reduced_; }
  // This rank's part of the mean gradient, 1-D, in the place of `piece`; only when is_reduced().
  at::Tensor of_piece(const Piece& piece) const;

 private:
  bool parks() const;
  void park(int slot, const at::Tensor& gradient);
  void unpark();
  void keep_parked();
  void forget(std::vector<at::Tensor>& gradients);
  void open_buffer();
  void zero_padding();
  void zero_missing();
  void set_aside_own_slice();
  at::Tensor full() const;
  at::Tensor own_slice() const;
  at::Tensor slot_view(int slot) const;

  const GroupContext& context_;
  const Layout& layout_;
  Dtypes dtypes_;
  std::string unit_;
  bool in_place_;  // the shard is the own slice of the full buffer, which then stays
  bool alone_;     // one rank: gradients stay where autograd left them

  Block full_;
  Block shard_;
  Block carried_;  // the own slice of an earlier reduction while the buffer collects again
  std::vector<at::Tensor> parked_;  // received, not yet reduced, outside the full buffer
  std::vector<at::Tensor> kept_;    // alone: what a reduction would have given
  std::vector<bool> received_;
  int num_unreduced_ = 0;
  bool is_reduced_ = false;
  bool is_reducing_ = false;
  Works works_;
};

}  // namespace fullshard
