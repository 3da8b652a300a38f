// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter 2019) and Adam (Kingma and Ba 2015), as torch.optim and DeepSpeed
// do them.
#pragma once

#include "fullshard/optim/optimizer.h"

namespace fullshard {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  bool adam_w_mode = true;      // false: Adam, weight decay is added to the gradient
  bool bias_correction = true;  // of both moments
  std::vector<ParameterRule> rules = {};
  at::ScalarType state_dtype = at::kFloat;
  uint64_t rounding_seed = 0;
};

class AdamW : public Optimizer {
 public:
  AdamW(ShardedModel model, const AdamWOptions& options);

 private:
  void update(const PieceUpdate& update) override;
  std::function<void(double factor)> deferred_update(const PieceUpdate& update) override;
  void update_on_device(const optim::DevicePass& pass) override;
  optim::AdamWStep constants_of(double factor, double lr, double weight_decay) const;

  AdamWOptions options_;
};

}  // namespace fullshard
