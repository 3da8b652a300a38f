// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/adamw.h"

#include <cmath>

#include "fullshard/optim/kernels/adamw_kernels.h"
#include "fullshard/optim/kernels/setting_checks.h"

namespace fullshard {
namespace {

OptimizerTraits adamw_traits(const AdamWOptions& options) {
  OptimizerTraits traits;
  traits.name = options.adam_w_mode ? "AdamW" : "Adam";
  optim::check_below_one(traits.name, "beta1", options.beta1);
  optim::check_below_one(traits.name, "beta2", options.beta2);
  optim::check_at_least_zero(traits.name, "epsilon", options.epsilon);
  traits.state_names = {"exp_avg", "exp_avg_sq"};
  traits.lr = options.lr;
  traits.weight_decay = options.weight_decay;
  traits.momentum = options.beta1;
  traits.beta2 = options.beta2;
  traits.rules = options.rules;
  traits.state_dtype = options.state_dtype;
  traits.rounding_seed = options.rounding_seed;
  return traits;
}

}  // namespace

AdamW::AdamW(ShardedModel model, const AdamWOptions& options)
    : Optimizer(std::move(model), adamw_traits(options)), options_(options) {}

optim::AdamWStep AdamW::constants_of(double factor, double lr, double weight_decay) const {
  const auto step = static_cast<double>(num_steps());
  optim::AdamWStep constants;
  constants.clip = factor;
  constants.beta1 = momentum();
  constants.beta2 = beta2();
  constants.step_size = lr;
  constants.epsilon = options_.epsilon;
  if (options_.adam_w_mode) {
    constants.decay = 1 - lr * weight_decay;
  } else {
    constants.l2 = weight_decay;
  }
  if (options_.bias_correction) {
    constants.step_size = lr / (1 - std::pow(momentum(), step));
    constants.root_correction = std::sqrt(1 - std::pow(beta2(), step));
  }
  return constants;
}

void AdamW::update(const PieceUpdate& update) {
  optim::adamw_step(constants_of(update.factor, update.lr, update.weight_decay), update.elements());
}

std::function<void(double)> AdamW::deferred_update(const PieceUpdate& update) {
  return [constants = constants_of(1, update.lr, update.weight_decay),
          elements = update.elements()](double factor) mutable {
    constants.clip = factor;
    optim::adamw_step(constants, elements);
  };
}

void AdamW::update_on_device(const optim::DevicePass& pass) {
  std::vector<optim::AdamWStep> steps;
  for (const auto& setting : pass.settings) {
    steps.push_back(constants_of(pass.factor, setting.lr, setting.weight_decay));
  }
  optim::step_on_device(pass, steps);
}

}  // namespace fullshard
