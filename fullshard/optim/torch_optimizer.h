// Any torch::optim::Optimizer over the pieces of a sharded model:
//   auto leaves = piece_parameters(sharded);
//   torch::optim::AdamW optimizer(leaves.tensors(), options);
//   leaves.step(optimizer);  optimizer.zero_grad() is sharded.zero_grad()
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "fullshard/shard/sharded_model.h"

namespace torch::optim {
class Optimizer;
}

namespace fullshard {

// This rank's pieces as leaf tensors that stay the same from step to step.
class PieceParameters {
 public:
  explicit PieceParameters(ShardedModel model);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  // Collective. Gives the pieces their (clipped) gradients, lets `optimizer` step over them, and
  // makes the new values visible to all ranks.
  void step(torch::optim::Optimizer& optimizer);

 private:
  ShardedModel model_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace fullshard
