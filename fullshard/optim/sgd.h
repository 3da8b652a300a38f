// Stochastic gradient descent with momentum, as torch.optim.SGD does it.
#pragma once

#include "fullshard/optim/optimizer.h"

namespace fullshard {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
};

class Sgd : public Optimizer {
 public:
  Sgd(ShardedModel model, const SgdOptions& options);

 private:
  void update(const PieceView& piece, const std::vector<at::Tensor>& states, float clip) override;

  SgdOptions options_;
};

}  // namespace fullshard
