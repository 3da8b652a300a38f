// SPDX-License-Identifier: Apache-2.0
// Lion (Chen and others 2023) with decoupled weight decay, as in DeepSpeed. Where moment and
// gradient are both zero the parameter does not step, as in the paper: DeepSpeed's CPU kernel moves
// it down and its CUDA kernel up.
#pragma once

#include "fullshard/optim/optimizer.h"

namespace fullshard {

struct LionOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double weight_decay = 0;
  std::vector<ParameterRule> rules = {};
  at::ScalarType state_dtype = at::kFloat;
  uint64_t rounding_seed = 0;
};

class Lion : public Optimizer {
 public:
  Lion(ShardedModel model, const LionOptions& options);

 private:
  void update(const PieceUpdate& update) override;
  std::function<void(double factor)> deferred_update(const PieceUpdate& update) override;
  void update_on_device(const optim::DevicePass& pass) override;
  optim::LionStep constants_of(double factor, double lr, double weight_decay) const;
};

}  // namespace fullshard
