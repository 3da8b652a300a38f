// The parameters of one unit that have one dtype and one requires_grad: gathered, released and
// reduced together. Owns their full buffer, this rank's shard of it and the optimizer's master
// copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/shard/flat_buffer.h"
#include "fullshard/shard/group_gradients.h"
#include "fullshard/shard/master_halves.h"

namespace fullshard {

// One parameter with all the names that the module tree gives it (tied weights have several).
struct NamedParameter {
  std::vector<std::string> names;
  at::Tensor tensor;
};

struct GroupSpec {
  std::string unit;  // path of the unit's module, "" for the root
  std::vector<NamedParameter> parameters;
  at::ScalarType compute_dtype = at::kFloat;
  at::ScalarType master_dtype = at::kFloat;
  at::ScalarType reduce_dtype = at::kFloat;
  at::ScalarType gradient_dtype = at::kFloat;
  bool trainable = true;
  Sharding sharding;
  // Masters are kept as what computation sees and the rest of them, where dtypes allow it.
  bool in_halves = false;
};

class ParamGroup {
 public:
  // Takes the parameters' present values, or rank 0's when `take_rank_0` (then collective). Those
  // that are deferred count as zeros and get memory only here.
  ParamGroup(const GroupContext& context, GroupSpec spec, bool take_rank_0);

  // Marks of "updated" for ranks that share one copy; slot of this group in them.
  void use_counters(std::shared_ptr<SharedCounters> counters, int slot);

  // Makes the parameters full: issued, then waited for. Doing either twice does nothing.
  void begin_unshard();
  void finish_unshard();
  void reshard();
  bool is_live() const { return flat_.is_attached(); }
  bool is_arriving() const { return arriving_; }
  bool is_released_at_rest() const { return !full_stays_; }

  // A scope in which the full parameters may be written: afterwards rank 0's values count.
  // finish_write is collective. Abandoned, at any point, it leaves the values from before it; after
  // its end that does nothing.
  void begin_write();
  void check_written() const;  // an error when a parameter was given other memory
  void finish_write();
  void abandon_write();

  // Around an optimizer's change of master: finish_update makes the new values visible to all.
  // Where parameters are held whole it is collective.
  void begin_finish_update();
  void finish_update();

  // An error that names the parameter when somebody wrote it or gave it other memory.
  void check_untouched();
  // Makes torch refuse a backward through a graph that saw the old values.
  void bump_versions();

  const Layout& layout() const { return layout_; }
  const GroupSpec& spec() const { return spec_; }
  bool trainable() const { return spec_.trainable; }
  at::Device device() const { return context_.mesh->world().device(); }
  const std::string& owner() const { return owner_; }  // "unit 'blocks.3'", for messages
  GroupGradients& gradients() { return gradients_; }
  const GroupGradients& gradients() const { return gradients_; }
  std::vector<at::Tensor> parameters() const;

  const std::vector<Piece>& pieces() const { return pieces_; }
  // 1-D, this rank's master values: a view of them, or a copy while they are in halves.
  at::Tensor master(const Piece& piece) const;
  at::Tensor master() const { return master(0, layout_.shard_numel()); }
  at::Tensor master(int64_t first, int64_t numel) const;
  // Where this rank's values are seen in the compute dtype while the unit rests; undefined when
  // that is the master itself, or nowhere.
  at::Tensor shown(const Piece& piece) const;
  // The next update finds it written.
  void note_shown() { is_shown_ = true; }

  // Masters in halves have no memory that others could write. Made whole they have it, until the
  // end of an update or of halve_master(), or for good.
  bool is_in_halves() const { return halves_.has_value(); }
  at::Tensor lower_half(const Piece& piece) const;  // its other one is `shown`
  void make_master_whole();
  void keep_master_whole();
  void halve_master();  // unless it is to be kept whole

 private:
  void make_buffers();
  void take_values();
  at::Tensor shard_to_send(const at::Tensor& own);
  void take_rank_0_values();
  void copy_own_pieces(const at::Tensor& target);
  void copy_slots(const at::Tensor& full);
  void adopt_parameters();
  void show_master_in_full();
  void take_written(const at::Tensor& values);
  void note_versions();
  void drop_private_copy();
  at::Tensor full() const;          // the buffer that parameters look at when live
  at::Tensor lasting_full() const;  // the same without a write scope's changes
  at::Tensor own_slice(const at::Tensor& full) const;
  int64_t full_bytes() const;

  const GroupContext& context_;
  GroupSpec spec_;
  std::string owner_;
  Layout layout_;
  std::vector<Piece> pieces_;
  FlatBuffer flat_;
  GroupGradients gradients_;

  bool full_stays_;  // held whole all the time
  bool one_copy_;    // the ranks of a host look at the same full buffer
  Block full_;       // while gathered, or always when full_stays_
  at::Tensor common_;
  Block master_block_;
  at::Tensor master_;  // 1-D, shard_numel; undefined while it is in halves
  std::optional<MasterHalves> halves_;
  bool wants_halves_;

  bool arriving_ = false;
  bool is_shown_ = false;  // the master's new values are in the resting full buffer already
  Works gather_;
  uint64_t share_ticket_ = 0;
  std::shared_ptr<SharedCounters> counters_;
  int counter_slot_ = 0;
  uint64_t version_ = 1;            // of the values: rises with every update
  uint64_t seen_version_ = 0;       // every owner is known to have reached it
  std::vector<uint32_t> versions_;  // of the parameters, as we left them
  bool is_writing_ = false;
  Block private_copy_;  // what a write scope changes where the full buffer outlives it
};

}  // namespace fullshard
