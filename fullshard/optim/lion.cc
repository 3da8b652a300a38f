// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/lion.h"

#include "fullshard/optim/kernels/lion_kernels.h"
#include "fullshard/optim/kernels/setting_checks.h"

namespace fullshard {
namespace {

OptimizerTraits lion_traits(const LionOptions& options) {
  OptimizerTraits traits;
  traits.name = "Lion";
  optim::check_below_one(traits.name, "beta1", options.beta1);
  optim::check_below_one(traits.name, "beta2", options.beta2);
  traits.state_names = {"exp_avg"};
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

Lion::Lion(ShardedModel model, const LionOptions& options)
    : Optimizer(std::move(model), lion_traits(options)) {}

optim::LionStep Lion::constants_of(double factor, double lr, double weight_decay) const {
  optim::LionStep constants;
  constants.clip = factor;
  constants.beta1 = momentum();
  constants.beta2 = beta2();
  constants.decay = 1 - lr * weight_decay;
  constants.lr = lr;
  return constants;
}

void Lion::update(const PieceUpdate& update) {
  optim::lion_step(constants_of(update.factor, update.lr, update.weight_decay), update.elements());
}

std::function<void(double)> Lion::deferred_update(const PieceUpdate& update) {
  return [constants = constants_of(1, update.lr, update.weight_decay),
          elements = update.elements()](double factor) mutable {
    constants.clip = factor;
    optim::lion_step(constants, elements);
  };
}

void Lion::update_on_device(const optim::DevicePass& pass) {
  std::vector<optim::LionStep> steps;
  for (const auto& setting : pass.settings) {
    steps.push_back(constants_of(pass.factor, setting.lr, setting.weight_decay));
  }
  optim::step_on_device(pass, steps);
}

}  // namespace fullshard
