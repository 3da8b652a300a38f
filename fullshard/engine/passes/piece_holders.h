// SPDX-License-Identifier: Apache-2.0
// All holders of pieces of one model, and the vote of the ranks on what their optimizers did: a
// rank may own none of what an optimizer steps over. Owned by the pass controller; one thread.
#pragma once

#include <vector>

#include "fullshard/comm/world/mesh.h"
#include "fullshard/engine/passes/piece_holder.h"

namespace fullshard::engine {

class PieceHolders {
 public:
  // The mesh outlives it. `shares_copy`: ranks read each other's masters.
  PieceHolders(const Mesh& mesh, bool shares_copy) : mesh_(mesh), shares_copy_(shares_copy) {}

  void enter(PieceHolder& holder) { holders_.push_back(&holder); }
  void leave(PieceHolder& holder);
  bool is_empty() const { return holders_.empty(); }

  // Something may have been done since the ranks asked each other last. The same on all ranks.
  bool may_have_news() const { return is_showing_ || may_have_values_; }
  struct News {
    bool values = false;   // on any rank
    bool cleared = false;  // all gradients, on all ranks
  };
  // Collective. What was done to gradients counts from here on, but those that are cleared are the
  // caller's to drop.
  News ask();

  bool has_new_values() const;
  void note_published();
  void publish();  // collective; there is news of values

  // Collective where ranks share a copy: it must not be written before all have done their
  // backward.
  void show();
  void show_again();
  void hide();
  // False: nothing is shown that could be multiplied.
  bool scale(double factor);

 private:
  // Where one rank has all pieces it knows all by itself.
  bool is_alone() const { return mesh_.num_shards() == 1; }

  const Mesh& mesh_;
  const bool shares_copy_;
  std::vector<PieceHolder*> holders_;
  bool is_showing_ = false;
  bool may_have_values_ = false;
};

}  // namespace fullshard::engine
