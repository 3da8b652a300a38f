// SPDX-License-Identifier: Apache-2.0
// Adagrad (Duchi, Hazan and Singer 2011), as torch.optim.Adagrad and DeepSpeed's CPU kernel do it.
#pragma once

#include "fullshard/optim/optimizer.h"

namespace fullshard {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double epsilon = 1e-10;
  std::vector<ParameterRule> rules = {};
  at::ScalarType state_dtype = at::kFloat;
  uint64_t rounding_seed = 0;
};

class Adagrad : public Optimizer {
 public:
  Adagrad(ShardedModel model, const AdagradOptions& options);

 private:
  void update(const PieceUpdate& update) override;
  std::function<void(double factor)> deferred_update(const PieceUpdate& update) override;
  void update_on_device(const optim::DevicePass& pass) override;
  optim::AdagradStep constants_of(double factor, double lr, double weight_decay) const;

  AdagradOptions options_;
};

}  // namespace fullshard
