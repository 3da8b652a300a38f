// SPDX-License-Identifier: Apache-2.0
// The tensors that a torch optimizer is given, their gradients, and what it did with both.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "fullshard/engine/passes/piece_holder.h"
#include "fullshard/engine/sharded_model.h"

namespace fullshard::optim {

// Shared by the copies of a PieceParameters. Tensors that outlive it say so when they are used.
class ShownPieces : public engine::PieceHolder {
 public:
  explicit ShownPieces(ShardedModel model);
  ~ShownPieces() override;
  ShownPieces(const ShownPieces&) = delete;
  ShownPieces& operator=(const ShownPieces&) = delete;

  const ShardedModel& model() const { return model_; }
  ShardedModel& model() { return model_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  // Not empty: gradients are shown, but any use of them throws this.
  void forbid(std::string why) { forbidden_ = std::move(why); }
  // Runs `step` while the pieces show their gradients times the factor, whatever they show else.
  void step_with(double factor, const std::function<void()>& step);

  bool has_new_values() const override;
  void note_published() override;
  void show_gradients() override;
  void hide_gradients() override;
  bool has_cleared_any() const override;
  bool has_kept_any() const override;
  void take_gradients() override;
  void scale_gradients(double factor, bool is_first) override;
  bool shows_usable_gradients() const override { return shows_usable_; }
  void publish() override;

 private:
  struct Shown {
    at::Tensor gradient = {};  // undefined: none is shown
    bool is_copy = false;      // of another dtype than the shard's
    int64_t version = 0;       // of what counts in the shard already
  };
  std::string why_unusable() const;
  Shown shown_of(const PieceView& piece, const at::Tensor& tensor) const;
  bool is_changed(size_t i) const;

  ShardedModel model_;
  std::vector<at::Tensor> tensors_;
  std::vector<int64_t> published_;  // versions of the tensors
  std::vector<Shown> shown_;
  bool is_showing_ = false;
  bool shows_usable_ = false;
  std::string forbidden_;
};

}  // namespace fullshard::optim
