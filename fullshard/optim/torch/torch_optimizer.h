// SPDX-License-Identifier: Apache-2.0
// Any torch::optim::Optimizer over the pieces of a sharded model, as over a plain one's parameters:
//   PieceParameters pieces(sharded);
//   torch::optim::AdamW optimizer(pieces.tensors(), options);
//   optimizer.zero_grad();  model(x).backward();  optimizer.step();
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/torch/foreign_optimizer.h"

namespace torch::optim {
class Optimizer;
}

namespace fullshard::optim {
class ShownPieces;
}

namespace fullshard {

// This rank's pieces as leaf tensors that stay the same from step to step: views of the masters,
// so that a 16-bit compute dtype still trains in the master's precision. The optimizer keeps its
// states by tensor, as always; save_checkpoint(folder, sharded, pieces, optimizer, progress) saves
// them by pieces.
//
// After a backward every piece shows its gradient as grad(), and the optimizer's own step() and
// zero_grad() do what they do to a plain parameter. Nothing tells when they are called: the next
// forward, backward, norm or scope finds out and makes new values visible, for which all ranks
// meet there, unless every rank holds all (NO_SHARD). Clip with sharded.clip_grad_norm(): torch's
// clip_grad_norm_ sees this rank's pieces only. Where the optimizer cannot use what it is shown
// (offload, a loss scale, rules that it has not been compared with), its step() throws, and
// step(optimizer) is the way.
//
// Copies are the same pieces. Keep one as long as the optimizer.
class PieceParameters {
 public:
  // With rules, step() refuses an optimizer that they do not allow; without, any may step.
  explicit PieceParameters(ShardedModel model, std::optional<ForeignOptimizerRules> rules = {});

  const ShardedModel& model() const;
  const std::vector<at::Tensor>& tensors() const;
  const std::vector<std::string>& names() const { return names_; }  // of the tensors' parameters

  // Collective. The same with one call that all ranks make: gives the pieces their gradients, in
  // the master's dtype and multiplied by what clipping and loss scaling left to do, lets
  // `optimizer` step over them, and makes the new values visible to all ranks. An optimizer that
  // wants a closure, as LBFGS, cannot be used.
  void step(torch::optim::Optimizer& optimizer);
  void zero_grad();

 private:
  std::optional<ForeignOptimizerRules> rules_;
  std::shared_ptr<optim::ShownPieces> shown_;
  std::vector<std::string> names_;
};

}  // namespace fullshard
