// SPDX-License-Identifier: Apache-2.0
// Pieces held by an optimizer that does not say what it does, as torch's own: it reads the
// gradients that pieces show, writes masters, and clears or changes gradients, whenever its caller
// says so. What it has done is found out when the model is used next.
#pragma once

namespace fullshard::engine {

// All of this rank alone; the engine asks all ranks.
class PieceHolder {
 public:
  virtual ~PieceHolder() = default;

  // Masters were written since note_published().
  virtual bool has_new_values() const = 0;
  virtual void note_published() = 0;

  // After a backward. Shown again, they show what is there now.
  virtual void show_gradients() = 0;
  // They are about to go, or to change.
  virtual void hide_gradients() = 0;
  // Of those that are shown.
  virtual bool has_cleared_any() const = 0;
  virtual bool has_kept_any() const = 0;
  // What was done to shown gradients is done to the shards'; one that was cleared becomes zero.
  virtual void take_gradients() = 0;
  // Multiplies what is shown; of memory that several holders show, one is the first.
  virtual void scale_gradients(double factor, bool is_first) = 0;
  // Otherwise they are shown, but cannot be read.
  virtual bool shows_usable_gradients() const = 0;

  // Collective, see ShardedModel::publish().
  virtual void publish() = 0;
};

}  // namespace fullshard::engine
