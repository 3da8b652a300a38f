// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/sgd.h"

#include "fullshard/optim/kernels/setting_checks.h"
#include "fullshard/optim/kernels/sgd_kernels.h"

namespace fullshard {
namespace {

OptimizerTraits sgd_traits(const SgdOptions& options) {
  OptimizerTraits traits;
  traits.name = "SGD";
  optim::check_at_least_zero(traits.name, "momentum", options.momentum);
  optim::check_at_least_zero(traits.name, "dampening", options.dampening);
  check(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
        "SGD: nesterov needs momentum above 0 and dampening 0, found momentum {} and dampening {}",
        options.momentum, options.dampening);
  if (options.momentum != 0) {
    traits.state_names = {"momentum_buffer"};
    traits.momentum = options.momentum;
  }
  traits.lr = options.lr;
  traits.weight_decay = options.weight_decay;
  traits.rules = options.rules;
  traits.state_dtype = options.state_dtype;
  traits.rounding_seed = options.rounding_seed;
  return traits;
}

}  // namespace

Sgd::Sgd(ShardedModel model, const SgdOptions& options)
    : Optimizer(std::move(model), sgd_traits(options)), options_(options) {}

optim::SgdStep Sgd::constants_of(double factor, double lr, double weight_decay) const {
  optim::SgdStep constants;
  constants.clip = factor;
  constants.lr = lr;
  constants.weight_decay = weight_decay;
  constants.momentum = momentum();
  // torch's first step copies the gradient into the buffer: undamped.
  constants.from_gradient = num_steps() == 1 ? 1 : 1 - options_.dampening;
  constants.nesterov = options_.nesterov;
  return constants;
}

void Sgd::update(const PieceUpdate& update) {
  optim::sgd_step(constants_of(update.factor, update.lr, update.weight_decay), update.elements());
}

std::function<void(double)> Sgd::deferred_update(const PieceUpdate& update) {
  return [constants = constants_of(1, update.lr, update.weight_decay),
          elements = update.elements()](double factor) mutable {
    constants.clip = factor;
    optim::sgd_step(constants, elements);
  };
}

void Sgd::update_on_device(const optim::DevicePass& pass) {
  std::vector<optim::SgdStep> steps;
  for (const auto& setting : pass.settings) {
    steps.push_back(constants_of(pass.factor, setting.lr, setting.weight_decay));
  }
  optim::step_on_device(pass, steps);
}

}  // namespace fullshard
