// SPDX-License-Identifier: Apache-2.0
// The parameters of one unit that have one dtype and one requires_grad: gathered, released and
// reduced together. Joins three parts, each behind its own interface: the storage of the full
// parameters (full_storage), this rank's master (master) and the gradients (group_gradients); the
// module's parameters are views of what the storage has.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/engine/gradients/group_gradients.h"
#include "fullshard/engine/passes/streamed_update.h"
#include "fullshard/engine/plan/group_spec.h"
#include "fullshard/engine/storage/flat_buffer.h"
#include "fullshard/engine/storage/full_storage.h"
#include "fullshard/engine/storage/master.h"

namespace fullshard::engine {

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
  bool is_released_at_rest() const { return full_->is_released_at_rest(); }

  // A scope in which the full parameters may be written: afterwards rank 0's values count.
  // finish_write is collective. Abandoned, at any point, it leaves the values from before it; after
  // its end that does nothing.
  void begin_write();
  void check_written() const;  // an error when a parameter was given other memory
  void finish_write();
  void abandon_write();

  // Around an optimizer's change of master: finish_update makes the new values visible to all.
  // Where parameters are held whole it is collective.
  void begin_publish();
  void finish_update();

  // An update of this group was issued beside the caller's stream. Until await_update() its
  // gradients keep their memory, and parameters that are held whole have none: whoever reads one
  // outside a forward is told. `read` lives as long.
  void begin_streamed_update(StreamedUpdate update, std::vector<at::Tensor> read);
  // The caller's stream goes on behind it; the host does not wait. Nothing without one.
  void await_update() {
    if (updated_) [[unlikely]]
      end_streamed_update();
  }
  bool is_updating() const { return updated_.has_value(); }

  // Everything of it that lies on the device goes, and comes back; meanwhile parameters have no
  // memory. It rests, and no update is under way.
  void leave_device(const memory::Relocation& relocation);
  void return_to_device(const memory::Relocation& relocation);

  // An error that names the parameter when somebody wrote it or gave it other memory.
  void check_untouched();
  // And when requires_grad is no longer what decided whether it has gradients and states.
  void check_trained_as_sharded() const;
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
  at::Tensor master(int64_t first, int64_t numel) const;  // waits for an update under way
  // The same for the next update, which runs behind the one before: no wait.
  at::Tensor master_to_update(const Piece& piece) const;
  // Where this rank's values are seen in the compute dtype while the unit rests; undefined when
  // that is the master itself, or nowhere.
  at::Tensor shown(const Piece& piece) const;
  // The next update finds it written.
  void note_shown() { is_shown_ = true; }
  // The next update changes nothing here: what is seen stays. A master that rests elsewhere may not
  // have the values of the last one yet.
  void note_unchanged() { is_shown_ = true; }

  // Masters in halves have no memory that others could write. Made whole they have it, until the
  // end of an update or of rest_master(), or for good.
  bool is_in_halves() const { return master_->is_in_halves(); }
  at::Tensor lower_half(const Piece& piece) const;  // its other one is `shown`; undefined: whole
  // What updates read and write of the master, and where it rests.
  std::vector<MasterPart> master_parts() const { return master_->parts(); }
  void make_master_whole();
  void keep_master_whole();
  void rest_master() { master_->rest(); }  // unless it is to be kept whole

 private:
  void take_values();
  void take_rank_0_values();
  void copy_own_pieces(const at::Tensor& target);
  void copy_slots(const at::Tensor& full, bool as_seen);
  void adopt_parameters();
  void end_write();
  void note_versions();
  void end_streamed_update();
  void relocate(const memory::Relocation& relocation);
  void await_stored() const;  // the host waits until the last update is where the master rests

  const GroupContext& context_;
  GroupSpec spec_;
  std::string owner_;
  Layout layout_;
  std::vector<Piece> pieces_;
  FlatBuffer flat_;
  GroupGradients gradients_;
  std::unique_ptr<FullStorage> full_;
  std::unique_ptr<Master> master_;

  bool arriving_ = false;
  std::optional<memory::LaneMark>
      updated_;              // of an update that the caller's stream has not come past
  memory::LaneMark stored_;  // of the last one, all of it
  std::vector<at::Tensor> read_by_update_;
  bool is_shown_ = false;           // the master's new values are in the resting slice already
  std::vector<uint32_t> versions_;  // of the parameters, as we left them
  bool is_writing_ = false;
};

}  // namespace fullshard::engine
