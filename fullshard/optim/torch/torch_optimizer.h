// SPDX-License-Identifier: Apache-2.0
// Any torch::optim::Optimizer over the pieces of a sharded model:
//   PieceParameters pieces(sharded);
//   torch::optim::AdamW optimizer(pieces.tensors(), options);
//   pieces.step(optimizer);  pieces.zero_grad();
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/torch/foreign_optimizer.h"

namespace torch::optim {
class Optimizer;
}

namespace fullshard {

// This rank's pieces as leaf tensors that stay the same from step to step: views of the masters,
// so that a 16-bit compute dtype still trains in the master's precision. The optimizer keeps its
// states by tensor, as always; save_checkpoint(folder, sharded, pieces, optimizer, progress) saves
// them by pieces.
class PieceParameters {
 public:
  // With rules, step() refuses an optimizer that they do not allow; without, any may step.
  explicit PieceParameters(ShardedModel model, std::optional<ForeignOptimizerRules> rules = {});

  const ShardedModel& model() const { return model_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  const std::vector<std::string>& names() const { return names_; }  // of the tensors' parameters

  // Collective. Gives the pieces their gradients, in the master's dtype and multiplied by what
  // clipping and loss scale left to do, lets `optimizer` step over them, and makes the new values
  // visible to all ranks. An optimizer that wants a closure, as LBFGS, cannot be used.
  void step(torch::optim::Optimizer& optimizer);
  void zero_grad() { model_.zero_grad(); }

 private:
  void give_gradients(double factor);

  ShardedModel model_;
  std::optional<ForeignOptimizerRules> rules_;
  std::vector<at::Tensor> tensors_;
  std::vector<std::string> names_;
};

}  // namespace fullshard
