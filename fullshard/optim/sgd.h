// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum, as torch.optim.SGD does it.
#pragma once

#include "fullshard/optim/optimizer.h"

namespace fullshard {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;  // 0: no buffer is kept, and none can be set later
  double weight_decay = 0;
  double dampening = 0;
  bool nesterov = false;  // needs momentum, and no dampening
  std::vector<ParameterRule> rules = {};
  at::ScalarType state_dtype = at::kFloat;
  uint64_t rounding_seed = 0;
};

class Sgd : public Optimizer {
 public:
  Sgd(ShardedModel model, const SgdOptions& options);

 private:
  void update(const PieceUpdate& update) override;
  std::function<void(double factor)> deferred_update(const PieceUpdate& update) override;
  void update_on_device(const optim::DevicePass& pass) override;
  optim::SgdStep constants_of(double factor, double lr, double weight_decay) const;

  SgdOptions options_;
};

}  // namespace fullshard
