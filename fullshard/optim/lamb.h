// SPDX-License-Identifier: Apache-2.0
// LAMB (You and others 2020) by the formula of DeepSpeed's FusedLamb: the step of each tensor is
// scaled by |parameter| / |direction|, norms over the whole tensor wherever it is cut.
#pragma once

#include <vector>

#include "fullshard/optim/optimizer.h"

namespace fullshard::optim {
struct LambStep;
}  // namespace fullshard::optim

namespace fullshard {

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool bias_correction = true;
  bool eps_inside_sqrt = false;
  double max_coeff = 10;  // bounds of the trust ratio
  double min_coeff = 0.01;
  std::vector<ParameterRule> rules = {};
  at::ScalarType state_dtype = at::kFloat;
  uint64_t rounding_seed = 0;
};

class Lamb : public Optimizer {
 public:
  Lamb(ShardedModel model, const LambOptions& options);

  // Of the last step, in the order of the module tree; 1 for parameters without a gradient.
  // Waits for the device when the model is on one.
  std::vector<float> trust_ratios() const;

 private:
  // One pass over moments and parameters, then one small all-gather over the shards: partial sums
  // are added in rank order and norms rounded once to fp32, so that they do not depend on the cut.
  void before_updates() override;
  void update(const PieceUpdate& update) override;
  void update_on_device(const optim::DevicePass& pass) override;
  void take_moments_on_device(const std::vector<PieceView>& pieces, at::Device device);
  optim::LambStep constants_of(double factor, double weight_decay) const;
  double step_size_of(double lr) const;  // with its corrections, without the trust ratio
  float trust_ratio(double parameter_squares, double direction_squares) const;

  LambOptions options_;
  std::vector<float> trust_ratios_;
  at::Tensor ratios_on_device_;  // instead of them
};

}  // namespace fullshard
