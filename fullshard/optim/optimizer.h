// What all optimizers over pieces share: states per group, one pass over the shard per step.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fullshard/shard/sharded_model.h"

namespace fullshard {

// Steps are collective. An optimizer holds the model's handle and keeps its states in the model's
// memory, so that reports see them.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Updates every parameter that has a gradient, scaled by a pending clip_grad_norm.
  void step();
  void zero_grad() { model_.zero_grad(); }
  int64_t num_steps() const { return num_steps_; }

 protected:
  Optimizer(ShardedModel model, int num_states, at::ScalarType state_dtype);

  // `states` are this piece's parts of the optimizer's states.
  virtual void update(const PieceView& piece, const std::vector<at::Tensor>& states,
                      float clip) = 0;

 private:
  ShardedModel model_;
  std::vector<std::vector<at::Tensor>> states_;  // [group][state]
  int64_t num_steps_ = 0;
};

}  // namespace fullshard
